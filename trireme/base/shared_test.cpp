#include "trireme/base/shared.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace trireme::shared_test {

struct Word {
  std::string text;
  friend bool operator==(const Word&, const Word&) = default;
};
size_t hash(const Word& word) {
  return word.text.size();  // so that some have equal ones
}

namespace {

TEST(Shared, equal_values_are_one_object) {
  const Shared<Word> one = Word{"layout"}, same = Word{"layout"}, other = Word{"pieces"};
  EXPECT_EQ(&*one, &*same);
  EXPECT_EQ(one, same);
  EXPECT_NE(&*one, &*other);
  EXPECT_FALSE(one == other);
  EXPECT_EQ(one, Word{"layout"});
  EXPECT_EQ(one->text, "layout");
  EXPECT_EQ(Shared<Word>(), Word{});
}

TEST(Shared, are_one_object_on_all_threads) {
  const Word* there = nullptr;
  std::thread([&] { there = &*Shared<Word>(Word{"of a thread"}); }).join();
  EXPECT_EQ(&*Shared<Word>(Word{"of a thread"}), there);
}

}  // namespace
}  // namespace trireme::shared_test
