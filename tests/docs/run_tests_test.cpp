// tools/run_tests, which `make test` ends with.
#include <gmock/gmock.h>

#include "tests/cli/program.h"

namespace docs::run_tests_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class RunTests : public trireme::cli::CliTest {
 protected:
  // Tests that end as these scripts do, known to CTest as those of a build folder are.
  trireme::cli::Outcome run_tests(const std::vector<std::string>& scripts) {
    std::string text;
    for (size_t i = 0; i < scripts.size(); ++i) {
      const std::string name = "test " + std::to_string(i + 1);
      text += "add_test(\"" + name + "\" /bin/sh -c \"" + scripts[i] + "\")\n";
      text += "set_tests_properties(\"" + name + "\" PROPERTIES SKIP_REGULAR_EXPRESSION \"\\\\[  SKIPPED \\\\]\")\n";
    }
    write("CTestTestfile.cmake", text);
    return run_shell("exec 2>&1; " TRIREME_SOURCE_DIR "/tools/run_tests . -j2 --output-on-failure");
  }
};

const char* const kNoHosts = "echo 'a_test.cpp:7: Skipped'; echo 'no hosts here'; echo; echo '[  SKIPPED ] A.b (0 ms)'";
const char* const kNoIsa = "echo 'a_test.cpp:9: Skipped'; echo 'no avx512 here'; echo; echo '[  SKIPPED ] A.c (0 ms)'";

TEST_F(RunTests, SaysBeforeTheSummaryHowManyTestsWereSkippedAndWhy) {
  const trireme::cli::Outcome outcome = run_tests({"echo fine", kNoHosts, kNoIsa, kNoHosts});

  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out,
              HasSubstr("3 tests were skipped:\n     2  no hosts here\n     1  no avx512 here\n\n100% tests passed, "));
  EXPECT_THAT(outcome.out, EndsWith("test 2 (Skipped)\n\t  3 - test 3 (Skipped)\n\t  4 - test 4 (Skipped)\n"));
}

TEST_F(RunTests, FailsWithCTestAndSaysNothingOfSkipsWhereThereAreNone) {
  const trireme::cli::Outcome outcome = run_tests({"echo fine", "exit 1"});

  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.out, Not(HasSubstr("skipped")));
  EXPECT_THAT(outcome.out, HasSubstr("50% tests passed, 1 tests failed out of 2"));
}

// What GoogleTest prints of a parameter differs from run to run: whoever asks for a test by its name needs words.
TEST_F(RunTests, TestsOfTheBuildFolderHaveNamesOfWords) {
  const trireme::cli::Outcome outcome = run_shell("ctest --test-dir " TRIREME_BUILD_DIR " -N");

  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(": docs: RunTests.TestsOfTheBuildFolderHaveNamesOfWords\n"));
  for (const char* of_a_parameter : {"GetParam", "0x", "-byte object"})
    EXPECT_THAT(outcome.out, Not(HasSubstr(of_a_parameter)));
}

TEST_F(RunTests, RefusesAFolderThatIsNone) {
  EXPECT_EQ(run_shell(TRIREME_SOURCE_DIR "/tools/run_tests gone").code, 2);
}

}  // namespace
}  // namespace docs::run_tests_test
