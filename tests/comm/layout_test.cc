// Layouts: what is refused, by Make() and from bytes alike, and how two are
// told apart.
#include "comm/layout.h"

#include <gtest/gtest.h>

#include <random>

namespace tensorlightning {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

// Serialised without asking Make(), as a stranger would.
std::vector<std::byte> Raw(const std::vector<Tensor>& tensors) {
  std::vector<std::byte> bytes;
  const auto put = [&](uint64_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
  };
  put(tensors.size(), 4);
  for (const Tensor& tensor : tensors) {
    put(tensor.name.size(), 2);
    for (const char c : tensor.name) put(static_cast<uint8_t>(c), 1);
    put(static_cast<uint64_t>(tensor.dtype), 1);
    put(tensor.shape.size(), 1);
    for (const uint64_t dimension : tensor.shape) put(dimension, 8);
  }
  return bytes;
}

Layout MakeOrDie(std::vector<Tensor> tensors) {
  Result<Layout> layout = Layout::Make(std::move(tensors));
  EXPECT_TRUE(layout.ok()) << layout.error().message;
  return *layout;
}

// Both ways to a layout refuse it, with words that have `part` in them.
AssertionResult BothRefuse(const std::vector<Tensor>& tensors,
                           const std::string& part) {
  const Result<Layout> made = Layout::Make(tensors);
  const Result<Layout> parsed = Layout::Parse(Raw(tensors));
  if (made.ok()) return AssertionFailure() << "Make() took it";
  if (parsed.ok()) return AssertionFailure() << "Parse() took it";
  if (made.error().code != ErrorCode::kInvalidArgument ||
      parsed.error().code != ErrorCode::kCorrupt) {
    return AssertionFailure() << "wrong code: " << made.error().message;
  }
  for (const Result<Layout>* refused : {&made, &parsed}) {
    if (refused->error().message.find(part) == std::string::npos) {
      return AssertionFailure() << refused->error().message;
    }
  }
  return AssertionSuccess();
}

TEST(Layout, ComesBackFromItsBytes) {
  const Layout layout = MakeOrDie({{"dense/kernel", {784, 128}},
                                   {"größe", {}, DType::kFloat64},
                                   {"", {1}, DType::kFloat16},
                                   {"\xff raw", {2, 3, 4}, DType::kBfloat16}});
  EXPECT_EQ(layout.entries(), 784u * 128 + 1 + 1 + 24);
  const Result<Layout> parsed = Layout::Parse(layout.Serialise());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(std::ranges::equal(parsed->tensors(), layout.tensors()));
  EXPECT_EQ(parsed->entries(), layout.entries());
  EXPECT_EQ(parsed->fingerprint(), layout.fingerprint());
  EXPECT_EQ(DescribeDifference(*parsed, layout), "");
}

TEST(Layout, FingerprintTellsNameShapeTypeAndOrderApart) {
  const Tensor a{"a", {2, 3}};
  const Tensor b{"b", {2}};
  const std::vector<std::vector<Tensor>> layouts = {
      {a, b},
      {b, a},
      {a},
      {{"c", {2, 3}}, b},
      {{"a", {3, 2}}, b},
      {{"a", {6}}, b},
      {{"a", {2, 3, 1}}, b},
      {{"a", {2, 3}, DType::kFloat16}, b}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (size_t j = 0; j < layouts.size(); ++j) {
      const Layout here = MakeOrDie(layouts[i]);
      const Layout there = MakeOrDie(layouts[j]);
      EXPECT_EQ(here.fingerprint() == there.fingerprint(), i == j);
      EXPECT_EQ(here.short_fingerprint() == there.short_fingerprint(), i == j);
      EXPECT_EQ(DescribeDifference(here, there).empty(), i == j);
    }
  }
}

TEST(Layout, ShortFingerprintIsTheFirstEightBytesLittleEndian) {
  const Layout layout = MakeOrDie({{"a", {2}}});
  uint64_t expected = 0;
  for (int i = 7; i >= 0; --i) {
    expected =
        expected << 8 |
        std::to_integer<uint64_t>(layout.fingerprint()[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(layout.short_fingerprint(), expected);
}

TEST(Layout, RefusesWhatIsNoModel) {
  EXPECT_TRUE(BothRefuse({}, "no tensors"));
  EXPECT_TRUE(
      BothRefuse({{"a", {3}}, {"b", {4, 0, 2}}}, "tensor 1 'b' is empty"));
  EXPECT_TRUE(BothRefuse({{"a", {3}}, {"b", {1}}, {"a", {4}}},
                         "tensor 2 'a' has the name of an earlier one"));
}

TEST(Layout, RefusesControlCharactersInNamesAndDoesNotRepeatThem) {
  for (const char c : {'\0', '\n', '\x1b', '\x7f'}) {
    const std::vector<Tensor> tensors = {{std::string("a") + c, {1}}};
    EXPECT_TRUE(BothRefuse(tensors, "control character"));
    EXPECT_EQ(Layout::Make(tensors).error().message.find(c), std::string::npos);
  }
}

TEST(Layout, RefusesUnknownTypes) {
  EXPECT_TRUE(BothRefuse({{"a", {1}, static_cast<DType>(kDTypes)}}, "type 4"));
}

TEST(Layout, HoldsNamesAndDimensionsToTheLimit) {
  const std::string longest(Layout::kMaxNameBytes, 'n');
  const std::vector<uint64_t> deepest(Layout::kMaxDimensions, 1);
  MakeOrDie({{longest, deepest}});
  EXPECT_TRUE(BothRefuse({{longest + "n", {1}}}, "1025 bytes"));
  std::vector<uint64_t> deeper = deepest;
  deeper.push_back(1);
  EXPECT_TRUE(BothRefuse({{"a", deeper}}, "17 dimensions"));
}

TEST(Layout, HoldsEntriesToTheLimitWithoutOverflow) {
  MakeOrDie({{"a", {uint64_t{1} << 20, uint64_t{1} << 20}}});
  EXPECT_TRUE(BothRefuse({{"a", {(uint64_t{1} << 40) + 1}}}, "entries"));
  EXPECT_TRUE(BothRefuse({{"a", {uint64_t{1} << 40}}, {"b", {1}}}, "entries"));
  // Products that are small modulo 2^64.
  EXPECT_TRUE(BothRefuse({{"a", {uint64_t{1} << 32, uint64_t{1} << 32, 1}}},
                         "entries"));
  EXPECT_TRUE(BothRefuse({{"a", {uint64_t{1} << 63, 2, 5}}}, "entries"));
  EXPECT_TRUE(BothRefuse({{"a", {UINT64_MAX, UINT64_MAX}}}, "entries"));
  EXPECT_TRUE(BothRefuse({{"a", {UINT64_MAX, UINT64_MAX, 0}}}, "empty"));
}

TEST(Layout, HoldsTensorsAndTheirDescriptionToTheLimit) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < Layout::kMaxTensors; ++i) {
    tensors.push_back({std::to_string(i), {1}});
  }
  MakeOrDie(tensors);
  tensors.push_back({"one more", {1}});
  EXPECT_TRUE(BothRefuse(tensors, "65537 tensors"));
  tensors.pop_back();
  for (Tensor& tensor : tensors) tensor.name.resize(300, '_');
  EXPECT_TRUE(BothRefuse(tensors, "shorter names"));
}

TEST(Layout, RefusesEveryPrefixAndAnyByteMore) {
  const std::vector<std::byte> whole =
      MakeOrDie({{"kernel", {7, 5}}, {"bias", {5}, DType::kFloat16}})
          .Serialise();
  for (size_t n = 0; n < whole.size(); ++n) {
    const Result<Layout> parsed = Layout::Parse(std::span(whole).first(n));
    ASSERT_FALSE(parsed.ok()) << n;
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt);
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Layout::Parse(longer).ok());
}

TEST(Layout, TakesAnyBytesAndWhatItTakesItWritesAgain) {
  std::mt19937_64 random(5);
  const std::vector<std::byte> whole =
      MakeOrDie({{"kernel", {7, 5}}, {"bias", {5}}}).Serialise();
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = whole;
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const Result<Layout> parsed = Layout::Parse(bytes);
    if (!parsed.ok()) continue;
    EXPECT_EQ(parsed->Serialise(), bytes);
    ++taken;
  }
  EXPECT_GT(taken, 0);
}

TEST(DescribeDifference, NamesTheFirstTensorThatDiffers) {
  const Layout here = MakeOrDie({{"a", {1}}, {"k", {784, 128}}, {"z", {1}}});
  const Layout there =
      MakeOrDie({{"a", {1}}, {"k", {784, 64}, DType::kFloat16}, {"y", {1}}});
  EXPECT_EQ(DescribeDifference(here, there),
            "tensor 1 is 'k' float32 [784, 128] here and 'k' float16 [784, 64] "
            "there");
}

TEST(DescribeDifference, NamesTheTensorThatIsMissing) {
  const Layout one = MakeOrDie({{"a", {1}}});
  const Layout two = MakeOrDie({{"a", {1}}, {"b", {}}});
  EXPECT_EQ(
      DescribeDifference(two, one),
      "tensor 1 is 'b' float32 [] here and missing there (2 tensors here, "
      "1 there)");
  EXPECT_EQ(
      DescribeDifference(one, two),
      "tensor 1 is 'b' float32 [] there and missing here (1 tensors here, "
      "2 there)");
}

TEST(Tensor, IsWrittenAsPeopleWriteIt) {
  const Tensor tensor{"dense/kernel", {784, 128}};
  EXPECT_EQ(tensor.ToString(), "dense/kernel float32 [784, 128]");
  EXPECT_EQ(tensor.entries(), 784u * 128);
}

}  // namespace
}  // namespace tensorlightning
