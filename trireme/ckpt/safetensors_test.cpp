#include "trireme/ckpt/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/memory_file_for_tests.h"
#include "trireme/base/rng.h"

namespace trireme::ckpt::safetensors_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostTensor counting(Shape shape, float first = 0) {
  HostTensor out({DType::kF32, shape});
  const auto values = out.as<float>();
  std::iota(values.begin(), values.end(), first);
  return out;
}

std::string length_of(uint64_t header) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &header, 8);
  return out;
}

// A file with this header and `data` bytes of zeros.
std::string file_with(const std::string& header, size_t data) {
  return length_of(header.size()) + header + std::string(data, '\0');
}

Error error_of(const std::string& path) {
  try {
    read_safetensors(path);
  } catch (const Error& e) {
    return e;
  }
  return Error(ErrorKind::kInternal, "no error");
}

TEST(Safetensors, TensorsOfEveryTypeComeBack) {
  const TempDirectory dir;
  const std::vector<DType> types = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                                    DType::kU8,  DType::kI32, DType::kI64, DType::kBool};
  std::vector<HostTensor> tensors;
  std::vector<NamedView> views;
  for (size_t i = 0; i < types.size(); ++i) {
    tensors.emplace_back(TensorType{types[i], {3, static_cast<int64_t>(i)}});
    for (auto& b : tensors.back().view().raw()) b = static_cast<std::byte>(i + 1);
  }
  tensors.emplace_back(TensorType{DType::kF32, {}});
  tensors.back().as<float>()[0] = 42;
  for (size_t i = 0; i < tensors.size(); ++i) views.push_back({fmt::format("t{:02}", i), tensors[i].view()});

  write_safetensors(dir / "x.safetensors", views, {{"format", "pt"}});
  const TensorFile read = read_safetensors(dir / "x.safetensors");

  EXPECT_EQ(read.metadata, (TextMap{{"format", "pt"}}));
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(read.tensors[i].name, views[i].name);
    EXPECT_EQ(read.tensors[i].data.type(), tensors[i].type());
    EXPECT_TRUE(std::ranges::equal(read.tensors[i].data.view().raw(), tensors[i].view().raw())) << i;
  }
}

TEST(Safetensors, TheBytesAreThoseOfTheFormat) {
  const TempDirectory dir;
  const HostTensor a = HostTensor::of<float>({2}, std::vector<float>{1, 2});
  const HostTensor b = HostTensor::of<int8_t>({3}, std::vector<int8_t>{7, 8, 9});

  write_safetensors(dir / "x", std::vector<NamedView>{{"small", b.view()}, {"big", a.view()}});

  const std::string json = R"({"big":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("small":{"dtype":"I8","shape":[3],"data_offsets":[8,11]}})";
  const std::string bytes = read_file(dir / "x");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ((8 + length) % 64, 0U);
  EXPECT_EQ(bytes.substr(8, json.size()), json);
  EXPECT_EQ(bytes.substr(8 + json.size(), length - json.size()), std::string(length - json.size(), ' '));
  EXPECT_EQ(bytes.substr(8 + length), std::string("\x00\x00\x80\x3f\x00\x00\x00\x40\x07\x08\x09", 11));
}

TEST(Safetensors, AFileOfOthersIsRead) {
  const TempDirectory dir;
  // Not padded, not sorted, an empty tensor between two others.
  const std::string header =
      R"({"b":{"data_offsets":[4,8],"dtype":"F32","shape":[1]},"e":{"dtype":"F32","shape":[0,5],)"
      R"("data_offsets":[4,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}} )";
  atomic_write(dir / "x", length_of(header.size()) + header + std::string("\0\0\x80\x3f\0\0\0\x40", 8));

  const TensorFile read = read_safetensors(dir / "x");

  ASSERT_EQ(read.tensors.size(), 3U);
  EXPECT_EQ(read.tensors[0].data.as<float>()[0], 1.0F);
  EXPECT_EQ(read.tensors[1].data.as<float>()[0], 2.0F);
  EXPECT_EQ(read.tensors[2].data.shape(), (Shape{0, 5}));
}

TEST(Safetensors, AFileOfNoTensorsIsReadAndWritten) {
  const TempDirectory dir;
  write_safetensors(dir / "x", {});
  EXPECT_TRUE(read_safetensors(dir / "x").tensors.empty());
}

TEST(Safetensors, ABoxOfATensorIsReadAlone) {
  const TempDirectory dir;
  const HostTensor whole = counting({6, 5, 4});
  write_safetensors(dir / "x", std::vector<NamedView>{{"w", whole.view()}});
  const Weights weights = Weights::open(dir / "x");
  const Box box{{2, 1, 0}, {3, 2, 4}};
  const HostTensor part({DType::kF32, box.size});

  weights.read("w", box, part.view());

  HostTensor expected({DType::kF32, box.size});
  copy_region(whole.view(), Box::whole(whole.shape()), expected.view(), box, box);
  EXPECT_TRUE(std::ranges::equal(part.as<float>(), expected.as<float>()));
  EXPECT_THROW(weights.read("w", {{4, 0, 0}, {3, 5, 4}}, HostTensor({DType::kF32, {3, 5, 4}}).view()), Error);
  EXPECT_THROW(weights.read("w", box, HostTensor({DType::kF32, {1}}).view()), Error);
}

TEST(Safetensors, HeadersThatLieAreRefusedWithTheValues) {
  const TempDirectory dir;
  const std::string path = dir / "x";
  const auto refused = [&](const std::string& bytes, ErrorKind kind = ErrorKind::kCorrupt) {
    atomic_write(path, bytes);
    const Error e = error_of(path);
    EXPECT_EQ(e.kind(), kind) << e.what();
    const std::string start = fmt::format("'{}'", path);
    EXPECT_TRUE(e.text().starts_with(start)) << e.text();
    return e.text().substr(start.size());
  };
  const auto one = [&](const std::string& fields, size_t data = 8) {
    return refused(file_with(R"({"a":{)" + fields + "}}", data));
  };
  const std::string good = R"("dtype":"F32","shape":[2],)";

  EXPECT_EQ(refused("abc"), " has 3 bytes; a safetensors file has at least 8");
  EXPECT_EQ(refused(length_of(1000) + "{}"), " claims a header of 1000 bytes; with its 10 bytes it can have 2");
  EXPECT_EQ(refused(length_of(~uint64_t{0}) + "{}"),
            " claims a header of 18446744073709551615 bytes; with its 10 bytes it can have 2");
  EXPECT_EQ(refused(file_with("[]", 0)), ": the header does not begin with '{'");
  EXPECT_EQ(refused(file_with("", 0)), ": the header does not begin with '{'");
  EXPECT_THAT(refused(file_with("{\"a\"", 0)), HasSubstr(": not valid JSON:"));
  EXPECT_EQ(one(good + R"("data_offsets":[0,12])"), ": tensor 'a' lies at bytes [0, 12) of 8 bytes of data");
  EXPECT_EQ(one(good + R"("data_offsets":[8,0])"), ": tensor 'a' lies at bytes [8, 0) of 8 bytes of data");
  EXPECT_EQ(one(good + R"("data_offsets":[0,4])"),
            ": tensor 'a' is f32[2] and so 8 bytes, but its offsets [0, 4) hold 4");
  EXPECT_EQ(one(good + R"("data_offsets":[0])"), ": tensor 'a': data_offsets is not a list of two");
  EXPECT_EQ(one(good + R"("data_offsets":[0,1e999])").substr(0, 16), ": not valid JSON");
  EXPECT_EQ(one(good + R"("data_offsets":[-1,8])"),
            ": tensor 'a' data_offsets is -1, not an integer from 0 to 2^63 - 1");
  EXPECT_EQ(one(good + R"("data_offsets":[0,8.0])"),
            ": tensor 'a' data_offsets is 8.0, not an integer from 0 to 2^63 - 1");
  EXPECT_EQ(one(good + R"("data_offsets":[0,18446744073709551615])"),
            ": tensor 'a' data_offsets is 18446744073709551615, not an integer from 0 to 2^63 - 1");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[2])"), ": tensor 'a' has no 'data_offsets'");
  EXPECT_EQ(one(good + R"("data_offsets":[0,8])", 9), " has 9 bytes of data, but its tensors 8");
  EXPECT_EQ(one(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"),
            ": tensor 'a' has elements of unknown type 'F31'");
  EXPECT_EQ(one(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), ": tensor 'a' dtype is number, not a string");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"),
            ": tensor 'a' shape has 9 dimensions; at most 8 are supported");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
            ": tensor 'a' shape has more than 2^58 elements");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"),
            ": tensor 'a' shape has more than 2^58 elements");
  EXPECT_EQ(
      refused(file_with(R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8), ErrorKind::kUnsupported),
      ": tensor 'a' has elements of type F8_E4M3; convert the file to F32, F16 or BF16");
  EXPECT_EQ(refused(file_with(R"({"a":7})", 0)), ": tensor 'a' is number, not an object");
  EXPECT_EQ(refused(file_with(R"({"__metadata__":{"k":1}})", 0)), ": __metadata__ 'k' is number, not a string");
}

TEST(Safetensors, TensorsThatOverlapLeaveHolesOrShareANameAreRefused) {
  const TempDirectory dir;
  const auto text_of = [&](int begin_b, int end_b, const char* second, size_t data) {
    atomic_write(dir / "x", file_with(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},)"
                                                  R"("{}":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}}}})",
                                                  second, begin_b, end_b),
                                      data));
    const Error e = error_of(dir / "x");
    EXPECT_EQ(e.kind(), ErrorKind::kCorrupt);
    return e.text().substr(e.text().rfind("': ") + 3);
  };

  EXPECT_EQ(text_of(2, 6, "b", 6), "tensors 'a' and 'b' overlap at byte 2 of the data");
  EXPECT_EQ(text_of(5, 9, "b", 9), "bytes [4, 5) of the data, before tensor 'b', belong to no tensor");
  EXPECT_EQ(text_of(4, 8, "a", 8), "the name 'a' appears twice");
}

TEST(Safetensors, JsonThatIsTooDeepIsRefused) {
  const TempDirectory dir;
  atomic_write(dir / "x", file_with(R"({"a":)" + std::string(100000, '['), 0));

  EXPECT_THAT(error_of(dir / "x").text(), HasSubstr("JSON deeper than 16 levels"));
}

TEST(Safetensors, NamesThatCannotBeWrittenAreRefused) {
  const TempDirectory dir;
  const HostTensor a = counting({2});
  const auto text_of = [&](const std::string& first, const std::string& second) {
    try {
      write_safetensors(dir / "x", std::vector<NamedView>{{first, a.view()}, {second, a.view()}});
    } catch (const Error& e) {
      return e.text();
    }
    return std::string("no error");
  };

  EXPECT_EQ(text_of("a", "a"), "two tensors are named 'a'");
  EXPECT_EQ(text_of("a", ""), "a tensor cannot be named ''");
  EXPECT_EQ(text_of("a", "__metadata__"), "a tensor cannot be named '__metadata__'");
  EXPECT_EQ(text_of("a", "\xff"), "a tensor name or metadata text is not valid UTF-8");
  EXPECT_THAT(list_directory(dir.path()), ElementsAre());
}

TEST(Weights, SeveralFilesWithAnIndexAreReadAsOne) {
  const TempDirectory dir;
  const HostTensor a = counting({2, 3});
  const HostTensor b = counting({4}, 10);
  write_safetensors(dir / "model-00001-of-00002.safetensors", std::vector<NamedView>{{"a", a.view()}});
  write_safetensors(dir / "model-00002-of-00002.safetensors",
                    std::vector<NamedView>{{"b", b.view()}, {"not_listed", a.view()}});
  atomic_write(dir / "model.safetensors.index.json",
               R"({"metadata":{"total_size":40},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
               R"("b":"model-00002-of-00002.safetensors"}})");

  for (const std::string& path : {dir.path(), dir / "model.safetensors.index.json"}) {
    const Weights weights = Weights::open(path);
    EXPECT_THAT(weights.names(), ElementsAre("a", "b"));
    EXPECT_EQ(weights.read("b").as<float>()[3], 13.0F);
    EXPECT_EQ(weights.metadata().at("total_size"), "40");
  }
}

TEST(Weights, AnIndexThatLiesIsRefused) {
  const TempDirectory dir;
  const HostTensor a = counting({2});
  write_safetensors(dir / "m.safetensors", std::vector<NamedView>{{"a", a.view()}});
  const auto text_of = [&](const std::string& index) {
    atomic_write(dir / "i.json", index);
    const Error e = error_of(dir / "i.json");
    EXPECT_NE(e.kind(), ErrorKind::kInternal);
    return e.text().substr(e.text().find("i.json'") + 7);
  };

  EXPECT_EQ(text_of(R"({"weight_map":{"a":"../m.safetensors"}})"), ": '../m.safetensors' is not a plain file name");
  EXPECT_EQ(text_of(R"({"weight_map":{"b":"m.safetensors"}})"),
            " says that 'm.safetensors' holds tensor 'b', but it does not");
  EXPECT_EQ(text_of(R"({"weights":{}})"), " has no 'weight_map'");
  EXPECT_EQ(text_of(R"({"weight_map":{"a":1}})"), " weight_map 'a' is number, not a string");
}

TEST(Weights, AFolderWithOneFileIsEnoughAndSeveralNeedAName) {
  const TempDirectory dir;
  const HostTensor a = counting({2});
  write_safetensors(dir / "x.safetensors", std::vector<NamedView>{{"a", a.view()}});
  EXPECT_THAT(Weights::open(dir.path()).names(), ElementsAre("a"));

  write_safetensors(dir / "y.safetensors", std::vector<NamedView>{{"a", a.view()}});
  const Error e = error_of(dir.path());
  EXPECT_EQ(e.kind(), ErrorKind::kNotFound);
  EXPECT_THAT(e.text(), HasSubstr("holds 2 .safetensors files and neither 'model.safetensors'"));
}

TEST(Weights, AMissingTensorIsNamedWithTheNearest) {
  const TempDirectory dir;
  const HostTensor a = counting({2});
  write_safetensors(dir / "x", std::vector<NamedView>{{"decoder.weight", a.view()}});
  try {
    Weights::open(dir / "x").type("decoder.weigth");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kNotFound);
    EXPECT_EQ(e.text(), fmt::format("'{}' holds no tensor 'decoder.weigth' among its 1. Did you mean "
                                    "'decoder.weight'?",
                                    dir / "x"));
  }
}

TEST(Safetensors, TwentyThousandRandomMutationsOnlyEverGiveErrors) {
  const TempDirectory dir;
  const HostTensor a = counting({3, 2});
  const HostTensor b = HostTensor::of<int8_t>({5}, std::vector<int8_t>{1, 2, 3, 4, 5});
  write_safetensors(dir / "good", std::vector<NamedView>{{"a", a.view()}, {"bb", b.view()}}, {{"k", "v"}});
  const std::string good = read_file(dir / "good");
  const MemoryFile file;
  int refused = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string bytes = good;
    std::array<uint32_t, 12> r{};
    fill_random_bits({7, 7}, 0, round, r);
    for (size_t i = 0; i < 1 + r[0] % 4; ++i) {
      static constexpr std::string_view kLikely = "0123456789[]{}\",:-e. \\";
      const bool is_likely = r[i + 8] % 2 == 0;
      bytes[r[i + 1] % bytes.size()] = is_likely ? kLikely[r[i + 5] % kLikely.size()] : static_cast<char>(r[i + 5]);
    }
    if (r[11] % 8 == 0) bytes.resize(r[11] / 8 % bytes.size());
    file.write(bytes);
    try {
      read_safetensors(file.path());
    } catch (const Error& e) {
      ASSERT_TRUE(e.kind() == ErrorKind::kCorrupt || e.kind() == ErrorKind::kUnsupported) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace trireme::ckpt::safetensors_test
