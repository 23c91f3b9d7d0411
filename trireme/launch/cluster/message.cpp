#include "trireme/launch/cluster/message.h"

#include <type_traits>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr int kMaxRanks = 65'536;
constexpr int kMaxRestarts = 1'000'000;
constexpr size_t kMaxName = 255;
constexpr size_t kMaxText = 3000;

class Writer {
 public:
  template <class T>
  void number(T value, int64_t, int64_t) {
    raw(static_cast<uint64_t>(value));
  }
  void bits(uint64_t value) { raw(value); }
  void text(const std::string& value, size_t most) {
    const std::string_view kept = std::string_view(value).substr(0, most);
    bytes_ += static_cast<char>(kept.size() & 0xff);
    bytes_ += static_cast<char>(kept.size() >> 8);
    bytes_ += kept;
  }
  std::string bytes() { return std::move(bytes_); }

 private:
  void raw(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
  }
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  void number(T& value, int64_t low, int64_t high) {
    const auto read = static_cast<int64_t>(raw(8));
    if (read < low || read > high) {
      fail(ErrorKind::kCorrupt, "scheduler message: a field is {}; it must be from {} to {}", read, low, high);
    }
    value = static_cast<T>(read);
  }
  void bits(uint64_t& value) { value = raw(8); }
  void text(std::string& value, size_t most) {
    const size_t length = raw(2);
    if (length > most || length > rest_.size()) {
      fail(ErrorKind::kCorrupt, "scheduler message: a text of {} bytes where at most {} are allowed and {} are left",
           length, most, rest_.size());
    }
    value = rest_.substr(0, length);
    rest_.remove_prefix(length);
  }
  void end() const {
    if (!rest_.empty()) fail(ErrorKind::kCorrupt, "scheduler message: {} bytes are left over", rest_.size());
  }

 private:
  uint64_t raw(size_t bytes) {
    if (rest_.size() < bytes) fail(ErrorKind::kCorrupt, "scheduler message: it ends within a field");
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
    rest_.remove_prefix(bytes);
    return value;
  }
  std::string_view rest_;
};

// One list of fields for both ways.
template <class Stream, class E>
void ending_fields(Stream& s, E& e) {
  s.number(e.exit_code, 0, 255);
  s.number(e.rank, -1, kMaxRanks);
  s.number(e.interrupt, 0, 64);
  s.number(e.may_be_consequence, 0, 1);
  s.text(e.text, kMaxText);
}

template <class Stream, class R>
void fields(Stream& s, R& r) requires std::is_same_v<std::remove_const_t<R>, NodeReport> {
  s.text(r.node_id, kMaxName);
  s.bits(r.instance);
  s.number(r.node_rank, -1, kMaxRanks);
  s.number(r.nodes, 0, kMaxRanks);
  s.number(r.world, 0, kMaxRanks);
  s.number(r.min_world, 0, kMaxRanks);
  s.number(r.workers, 0, kMaxRanks);
  s.number(r.attempt, 0, kMaxRestarts);
  s.number(r.running_world, 0, kMaxRanks);
  s.text(r.host, kMaxName);
  s.bits(r.machine);
  s.text(r.store_address, kMaxName);
  s.number(r.store_port, 0, 65'535);
  s.bits(r.job);
  s.number(r.first_rank, -1, kMaxRanks);
  s.number(r.state, 0, 3);
  s.number(r.interrupt, 0, 64);
  ending_fields(s, r.ending);
  s.bits(r.seen);
  s.bits(r.name);
}

template <class Stream, class V>
void fields(Stream& s, V& v) requires std::is_same_v<std::remove_const_t<V>, ClusterView> {
  s.bits(v.version);
  s.number(v.phase, 0, 2);
  s.text(v.refused, kMaxName);
  s.number(v.attempt, 0, kMaxRestarts);
  s.number(v.restarts, 0, kMaxRestarts);
  s.number(v.again, 0, 1);
  s.number(v.world, 0, kMaxRanks);
  s.bits(v.job);
  s.number(v.registered, 0, kMaxRanks);
  s.number(v.first_rank, -1, kMaxRanks);
  s.number(v.node_index, 0, kMaxRanks);
  s.number(v.nodes, 0, kMaxRanks);
  s.number(v.first_local, 0, kMaxRanks);
  s.number(v.local_world, 0, kMaxRanks);
  s.text(v.store_address, kMaxName);
  s.number(v.store_port, 0, 65'535);
  s.number(v.interrupt, 0, 64);
  s.number(v.beat_ms, 0, 3'600'000);
  ending_fields(s, v.ending);
  s.bits(v.name);
}

template <class T>
std::string encode_any(const T& message) {
  Writer writer;
  fields(writer, message);
  return writer.bytes();
}

template <class T>
T decode_any(std::string_view bytes) {
  T message;
  Reader reader(bytes);
  fields(reader, message);
  reader.end();
  return message;
}

}  // namespace

std::string encode(const NodeReport& report) {
  return encode_any(report);
}
std::string encode(const ClusterView& view) {
  return encode_any(view);
}
NodeReport decode_report(std::string_view bytes) {
  return decode_any<NodeReport>(bytes);
}
ClusterView decode_view(std::string_view bytes) {
  return decode_any<ClusterView>(bytes);
}

}  // namespace trireme::launch
