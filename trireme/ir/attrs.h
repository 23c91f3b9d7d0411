// Attrs: the attributes of a node, an immutable record of one plain struct per op.
//
// The struct lists its fields once; print, parse, equality and hash follow from the list, and a list that
// forgets a member does not compile:
//
//   struct PoolAttrs {
//     int64_t size = 2;
//     int64_t stride = 2;
//     static constexpr auto fields() {
//       return std::tuple{field("size", &PoolAttrs::size), field("stride", &PoolAttrs::stride)};
//     }
//   };
//
// Field types: bool, int64_t, double, DType, std::string, Shape, std::vector<int64_t>.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/tensor/shape.h"

namespace trireme {

template <class T, class M>
struct Field {
  std::string_view name;
  M T::*member;
};

template <class T, class M>
constexpr Field<T, M> field(std::string_view name, M T::*member) {
  return {name, member};
}

namespace detail {

void write_attr(std::string& out, bool value);
void write_attr(std::string& out, int64_t value);
void write_attr(std::string& out, double value);
void write_attr(std::string& out, DType value);
void write_attr(std::string& out, const std::string& value);
void write_attr(std::string& out, const Shape& value);
void write_attr(std::string& out, const std::vector<int64_t>& value);

// Each reads the whole of `text`; false when it is not a value of the type.
bool read_attr(std::string_view text, bool& value);
bool read_attr(std::string_view text, int64_t& value);
bool read_attr(std::string_view text, double& value);
bool read_attr(std::string_view text, DType& value);
bool read_attr(std::string_view text, std::string& value);
bool read_attr(std::string_view text, Shape& value);
bool read_attr(std::string_view text, std::vector<int64_t>& value);

// A field of one record: the templates below make these for each op, and all that is done with them is compiled once.
struct FieldOf {
  std::string_view name;
  std::variant<bool*, int64_t*, double*, DType*, std::string*, Shape*, std::vector<int64_t>*> place;
};

template <class T>
auto fields_of(T& record) {
  return std::apply(
      [&](const auto&... f) {
        return std::array<FieldOf, sizeof...(f)>{FieldOf{f.name, &(record.*f.member)}...};
      },
      T::fields());
}

// "{a=1, b=[2,3]}", and back; reading throws kInvalidArgument and leaves fields alone that the text does not name.
std::string text_of_fields(std::span<const FieldOf> fields);
void read_fields(std::string_view text, std::span<const FieldOf> fields);
const FieldOf& named(std::string_view name, std::span<const FieldOf> fields);  // throws kInternal where there is none
[[noreturn]] void fail_of_other_type(std::string_view name, const std::string& text);

struct AnyMember {
  template <class T>
  operator T() const;  // NOLINT: only ever named in an unevaluated context
};

// How many members an aggregate has: the most that brace initialisation takes.
template <class T, class... Members>
constexpr size_t count_members() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; }) {
    return count_members<T, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}

struct Record {
  virtual ~Record() = default;
  virtual const void* type() const = 0;
  virtual FieldOf field_named(std::string_view name) const = 0;
  void set_text(std::string of_fields) {
    text = std::move(of_fields);
    hash = std::hash<std::string>()(text);
  }
  std::string text;
  size_t hash = 0;  // of the text
};

template <class T>
inline constexpr char type_tag = 0;

template <class T>
struct RecordOf final : Record {
  explicit RecordOf(T v) : value(std::move(v)) { set_text(text_of_fields(fields_of(value))); }
  const void* type() const override { return &type_tag<T>; }
  FieldOf field_named(std::string_view name) const override { return named(name, fields_of(const_cast<T&>(value))); }
  T value;
};

}  // namespace detail

// The attributes of an op that has none.
struct NoAttrs {
  static constexpr auto fields() { return std::tuple{}; }
};

class Attrs {
 public:
  Attrs() : Attrs(none()) {}

  template <class T>
  static Attrs of(T value) {
    static_assert(std::tuple_size_v<decltype(T::fields())> == detail::count_members<T>(),
                  "fields() must list every member of the attribute struct");
    return Attrs(std::make_shared<detail::RecordOf<T>>(std::move(value)));
  }

  // Reads what text() wrote. Unknown or unreadable fields throw kInvalidArgument; missing ones keep their
  // defaults.
  template <class T>
  static Attrs parse(std::string_view text) {
    T value{};
    detail::read_fields(text, detail::fields_of(value));
    return of(std::move(value));
  }

  template <class T>
  const T& as() const {
    invariant(record_->type() == &detail::type_tag<T>, "attributes {} read as another op's", text());
    return static_cast<const detail::RecordOf<T>&>(*record_).value;
  }

  // One field by its name, for who does not see the struct: kernels, if it stands in the op's file. Throws kInternal
  // where the record has no field of this name and type.
  template <class M>
  const M& get(std::string_view name) const {
    const auto place = record_->field_named(name).place;
    if (M* const* const found = std::get_if<M*>(&place)) return **found;
    detail::fail_of_other_type(name, text());
  }

  const std::string& text() const { return record_->text; }
  size_t hash() const { return record_->hash; }  // equal attributes have equal ones
  friend bool operator==(const Attrs& a, const Attrs& b) {
    return a.record_ == b.record_ || (a.record_->type() == b.record_->type() && a.text() == b.text());
  }

 private:
  explicit Attrs(std::shared_ptr<const detail::Record> record) : record_(std::move(record)) {}
  static const Attrs& none() {
    static const Attrs kNone = of(NoAttrs{});
    return kNone;
  }
  std::shared_ptr<const detail::Record> record_;
};

}  // namespace trireme
