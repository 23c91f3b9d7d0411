#include "trireme/mesh/tuning.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::tuning_test {
namespace {

const std::string kMachine = "A CPU, avx512";

Tuning some() {
  return {kMachine, {{"f32:4x5x6:nn", "blocks"}, {"f32:4x5x6:nt", "sgemm"}}};
}

template <class Fn>
std::string refusal_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.text();
  }
  return "nothing was refused";
}

std::string refusal(std::string_view text) {
  return refusal_of([&] { parse_tuning(text); });
}

TEST(Tuning, is_read_as_it_is_written) {
  const std::string text = to_string(some());
  EXPECT_EQ(text, "trireme tuning 1\nmachine A CPU, avx512\nway f32:4x5x6:nn blocks\nway f32:4x5x6:nt sgemm\n");
  EXPECT_EQ(to_string(parse_tuning(text)), text);
}

TEST(Tuning, ways_are_of_as_many_threads_as_are_busy) {
  EXPECT_EQ(work_among("f32:4x5x6:nn", 1), "f32:4x5x6:nn");
  Tuning tuning = some();
  tuning.ways[work_among("f32:4x5x6:nn", 2)] = "tiles";
  const std::string text = to_string(tuning);
  EXPECT_EQ(text,
            "trireme tuning 1\nmachine A CPU, avx512\nway f32:4x5x6:nn blocks\nway f32:4x5x6:nn@2 tiles\n"
            "way f32:4x5x6:nt sgemm\n");
  Tuning read = parse_tuning(text);
  EXPECT_EQ(*read.way_of("f32:4x5x6:nn"), "blocks");
  read.busy = 2;
  EXPECT_EQ(*read.way_of("f32:4x5x6:nn"), "tiles");
  EXPECT_EQ(read.way_of("f32:4x5x6:nt"), nullptr);
}

TEST(Tuning, of_another_form_is_refused_with_the_line) {
  EXPECT_EQ(refusal("trireme tuning 2\n"), "line 1 of a tuning is 'trireme tuning 2'; it must be 'trireme tuning 1'");
  EXPECT_EQ(refusal("trireme tuning 1\n"), "line 2 of a tuning is ''; it must be 'machine NAME'");
  EXPECT_EQ(refusal("trireme tuning 1\nmachine a\nway x"),
            "line 3 of a tuning does not end within 512 bytes; the file may have been cut off");
  EXPECT_EQ(refusal("trireme tuning 1\nmachine a\nway x\n"),
            "line 3 of a tuning is 'way x'; it must be 'way WORK NAME'");
  EXPECT_EQ(refusal("trireme tuning 1\nmachine a\nway x y\nway x z\n"),
            "line 4 of a tuning is for 'x', which does not come after 'x'; each work stands once, in order");
}

TEST(Tuning, of_a_file_that_is_not_there_is_empty) {
  const TempDirectory folder;
  const Tuning none = read_tuning(folder / "tuning", kMachine);
  EXPECT_EQ(none.machine, kMachine);
  EXPECT_TRUE(none.ways.empty());
}

TEST(Tuning, keeps_what_another_process_has_put_into_the_file) {
  const TempDirectory folder;
  const std::string path = folder / "new/folder/tuning";
  add_to_tuning(path, {kMachine, {{"a", "sgemm"}}});
  const Tuning all = add_to_tuning(path, {kMachine, {{"a", "blocks"}, {"b", "blocks"}}});
  EXPECT_EQ(all.ways.at("a"), "sgemm");
  EXPECT_EQ(to_string(read_tuning(path, kMachine)), to_string(all));
  EXPECT_EQ(list_directory(parent_path(path)).size(), 1U);  // nothing else is left
}

TEST(Tuning, of_another_machine_or_a_damaged_one_is_refused_and_replaced) {
  const TempDirectory folder;
  const std::string path = folder / "tuning";
  atomic_write(path, to_string(some()));
  EXPECT_EQ(refusal_of([&] { read_tuning(path, "B"); }),
            path + " is the tuning of 'A CPU, avx512', and this is 'B'; name another file");
  atomic_write(path, "trireme tun");
  EXPECT_EQ(refusal_of([&] { read_tuning(path, kMachine); }),
            path +
                ": line 1 of a tuning does not end within 512 bytes; the file may have been cut off; remove it, and "
                "it is measured again");
  add_to_tuning(path, some());
  EXPECT_EQ(to_string(read_tuning(path, kMachine)), to_string(some()));
}

}  // namespace
}  // namespace trireme::tuning_test
