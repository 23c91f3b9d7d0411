#include "trireme/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

#include "trireme/base/disk_wait.h"
#include "trireme/base/error.h"

namespace trireme::file_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

template <class F>
std::string io_text(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo) << e.what();
    return e.text();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(File, WhatIsWrittenIsReadBackByEveryReader) {
  const TempDirectory dir;
  const std::string path = dir / "x";
  const std::string text = std::string("ab\0cd", 5) + std::string(100000, 'z');

  atomic_write(path, text);

  EXPECT_EQ(read_file(path), text);
  const MappedFile mapped(path);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()), text);
  const InputFile file(path);
  std::string middle(3, ' ');
  file.read(1, std::as_writable_bytes(std::span(middle)));
  EXPECT_EQ(middle, std::string("b\0c", 3));
  EXPECT_EQ(file.bytes(), 100005);
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("x"));
}

// A pipe stands for a file system whose callers sleep as if for nothing.
TEST(File, WhoSleepsInACallIsCountedAmongThoseThatWaitForADisk) {
  static std::atomic<int> waits{0};  // stays, as what counts there may
  count_disk_waits(waits);
  const auto until_one_waits = [] {
    for (int i = 0; i < 60'000 && waits == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(waits, 1);
  };
  const TempDirectory dir;
  const std::string path = dir / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string text(1 << 22, 'z');  // more than a pipe holds

  std::jthread writer([&] {
    const int file = disk().create(path);  // sleeps until somebody reads
    disk().write(file, std::as_bytes(std::span(text)), path);
    disk().close(file, path);
  });
  until_one_waits();
  const int reader = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  size_t got = 0;
  std::string piece(1 << 16, ' ');
  for (ssize_t count = 1; count > 0;) {
    if (got == piece.size()) until_one_waits();
    count = ::read(reader, piece.data(), std::min(piece.size(), text.size() - got));
    got += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  EXPECT_EQ(got, text.size());
  writer.join();
  ::close(reader);
  EXPECT_EQ(waits, 0);
}

TEST(File, AnEmptyFileIsReadAndMapped) {
  const TempDirectory dir;
  atomic_write(dir / "empty", "");

  EXPECT_EQ(read_file(dir / "empty"), "");
  EXPECT_TRUE(MappedFile(dir / "empty").bytes().empty());
}

TEST(File, TwoWhoWriteOnePathDoNotMeet) {
  const TempDirectory dir;
  OutputFile one(dir / "x"), other(dir / "x");
  one.write("one, ");
  other.write("the other");
  one.write("whole");
  one.commit();
  EXPECT_EQ(read_file(dir / "x"), "one, whole");
  other.commit();

  EXPECT_EQ(read_file(dir / "x"), "the other");
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("x"));
}

TEST(File, AnAtomicWriteReplacesTheOldContent) {
  const TempDirectory dir;
  atomic_write(dir / "x", "a longer text");
  atomic_write(dir / "x", "short");

  EXPECT_EQ(read_file(dir / "x"), "short");
}

TEST(File, AnOutputFileThatIsNotCommittedLeavesTheOldOneAndNoTraces) {
  const TempDirectory dir;
  atomic_write(dir / "x", "old");
  {
    OutputFile file(dir / "x");
    file.write("half");
  }

  EXPECT_EQ(read_file(dir / "x"), "old");
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("x"));
}

TEST(File, ErrorsNameThePathAndTheReason) {
  const TempDirectory dir;
  atomic_write(dir / "file", "x");

  EXPECT_EQ(io_text([&] { read_file(dir / "none"); }),
            fmt::format("cannot open '{}': No such file or directory", dir / "none"));
  EXPECT_EQ(io_text([&] { read_file(dir.path()); }), fmt::format("cannot read '{}': Is a directory", dir.path()));
  EXPECT_THAT(
      io_text([&] { atomic_write(dir / "none/x", "x"); }),
      MatchesRegex(fmt::format("cannot create '{}\\.[0-9]+-[0-9]+\\.tmp': No such file or directory", dir / "none/x")));
  EXPECT_EQ(io_text([&] { disk().make_directory(dir / "file/sub"); }),
            fmt::format("cannot make the directory '{}': Not a directory", dir / "file/sub"));
  EXPECT_THAT(io_text([&] { list_directory(dir / "none"); }), HasSubstr("cannot list the directory"));
  EXPECT_THAT(io_text([&] { file_bytes(dir / "none"); }), HasSubstr("cannot inspect"));
  EXPECT_THAT(io_text([&] { free_bytes(dir / "none"); }), HasSubstr("cannot inspect"));
  EXPECT_THAT(io_text([&] { disk().rename(dir / "none", dir / "y"); }), HasSubstr("cannot rename"));
}

TEST(File, AReadPastTheEndSaysWhereTheFileEnds) {
  const TempDirectory dir;
  atomic_write(dir / "x", "abc");
  const InputFile file(dir / "x");
  std::array<std::byte, 4> out{};
  try {
    file.read(1, out);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCorrupt);
    EXPECT_EQ(e.text(), fmt::format("'{}' ends after 3 bytes; 5 were expected", dir / "x"));
  }
}

TEST(File, AFullDiskIsReportedAndLeavesTheOldFile) {
  const TempDirectory dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "[skip: no right to mount a small file system]";
  }
  atomic_write(dir / "x", "old");

  const std::string text = io_text([&] { atomic_write(dir / "x", std::string(1 << 20, 'z')); });
  const std::string kept = read_file(dir / "x");
  const auto names = list_directory(dir.path());
  ::umount(dir.path().c_str());

  EXPECT_THAT(text, HasSubstr("No space left on device; free space there or choose another directory"));
  EXPECT_EQ(kept, "old");
  EXPECT_THAT(names, ElementsAre("x"));
}

TEST(File, AReadOnlyDiskIsReported) {
  const TempDirectory dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", MS_RDONLY, "size=64k") != 0) {
    GTEST_SKIP() << "[skip: no right to mount a small file system]";
  }

  const std::string text = io_text([&] { atomic_write(dir / "x", "x"); });
  ::umount(dir.path().c_str());

  EXPECT_THAT(text, HasSubstr("Read-only file system; choose a directory that you may write to"));
}

TEST(File, RemoveTreeTakesAllBelowAndFollowsNoLinks) {
  const TempDirectory dir;
  disk().make_directory(dir / "keep");
  atomic_write(dir / "keep/precious", "x");
  disk().make_directory(dir / "a/b/c");
  atomic_write(dir / "a/b/file", "x");
  disk().symlink(dir / "keep", dir / "a/link");

  remove_tree(dir / "a");
  remove_tree(dir / "a");  // missing is fine

  EXPECT_THAT(list_directory(dir.path()), ElementsAre("keep"));
  EXPECT_EQ(read_file(dir / "keep/precious"), "x");
}

TEST(File, ATempDirectoryIsGoneAfterwards) {
  std::string path;
  {
    const TempDirectory dir;
    path = dir.path();
    atomic_write(dir / "x", "x");
    EXPECT_TRUE(is_directory(path));
    EXPECT_TRUE(is_file(dir / "x"));
  }
  EXPECT_FALSE(is_directory(path));
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return error.text();
  }
}

TEST(File, WhatIsNoFileIsToldByWhatItIs) {
  const TempDirectory dir;
  atomic_write(dir / "x", "x");
  atomic_write(dir / "job.toml", "x");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  const auto why = [&](const std::string& name) {
    return error_of([&] { require_file(dir / name, "job", "name one"); });
  };

  EXPECT_EQ(why("x"), "");
  EXPECT_EQ(why("gone"), "job: there is no file '" + (dir / "gone") + "'; name one");
  EXPECT_EQ(why("jop.toml"), "job: there is no file '" + (dir / "jop.toml") + "' (did you mean '" + (dir / "job.toml") +
                                 "'?); name one");
  EXPECT_EQ(why("x/y"), "job: there is no file '" + (dir / "x/y") + "'; name one");
  EXPECT_EQ(why(""), "job: '" + (dir / "") + "' is a directory; name one");
  EXPECT_EQ(why("pipe"),
            "job: '" + (dir / "pipe") + "' is a pipe or a device, which cannot be read several times; name one");
  EXPECT_EQ(error_of([&] { require_directory(dir / "x", "--disk", "make it"); }),
            "--disk: '" + (dir / "x") + "' is a file; make it");
  EXPECT_EQ(error_of([&] { require_directory(dir / "y", "--disk", "make it"); }),
            "--disk: there is no directory '" + (dir / "y") + "'; make it");
}

TEST(File, PathsAreJoinedAndTakenApart) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(parent_path("a/b"), "a");
  EXPECT_EQ(parent_path("b"), ".");
  EXPECT_EQ(base_name("a/b.c"), "b.c");
}

}  // namespace
}  // namespace trireme::file_test
