#include "trireme/train/plan/exact/exact_certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "trireme/base/error.h"
#include "trireme/planner/certificate/verify_certificate.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"

namespace trireme::exact_certificate_test {
namespace {

PlanRequest small_request(int64_t ranks = 4, size_t top = 40, const std::vector<std::string>& keys = {}) {
  PlanRequest out{.ranks = ranks, .memory_bytes = int64_t{1} << 34, .top = top};
  set_published_model(out.job, "gpt2");
  set_keys(out.job,
           {"model.layers=4", "model.width=64", "model.heads=4", "data.seq=32", "train.batch=16", "data.validation=0"});
  set_keys(out.job, keys);
  return out;
}

// All that `trireme plan verify PLAN JOB` looks at.
void check_all(const std::string& text, const PlanFile& plan, CertifiedJob& job) {
  const Certificate certificate = parse_certificate(text);
  verify_certificate(certificate);
  check_certified_plan(certificate, plan);
  job.check(certificate);
}

template <class Fn>
std::string error_of_certificate(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(ExactCertificate, of_a_plan_is_verified_against_the_plan_and_the_job) {
  const PlanRequest request = small_request();
  const ExactPlan plan = plan_exact(request);
  const Certificate certificate = certificate_of(plan, request);
  CertifiedJob job(request);
  const std::string text = to_string(certificate);
  EXPECT_EQ(to_string(parse_certificate(text)), text);
  EXPECT_NO_THROW(check_all(text, plan_file(plan, 4), job));
  const std::string proven = proven_text(certificate);
  EXPECT_THAT(proven, testing::HasSubstr("proven: no other way in its space takes less; the gap is 0"));
  EXPECT_THAT(proven, testing::HasSubstr(fmt::format("exactly {} ps", plan.best.front().price.total)));
}

TEST(ExactCertificate, proves_that_nothing_fits) {
  PlanRequest request = small_request(2);
  request.memory_bytes = 1000;
  const ExactPlan plan = plan_exact(request);
  const Certificate certificate = certificate_of(plan, request);
  EXPECT_TRUE(certificate.best.empty());
  EXPECT_NO_THROW(verify_certificate(certificate));
  EXPECT_THAT(proven_text(certificate), testing::HasSubstr("proven: no way in its space fits"));
}

TEST(ExactCertificate, for_another_job_is_refused_naming_what_differs) {
  const Certificate certificate = certificate_of(plan_exact(small_request(4, 1)), small_request(4, 1));
  const auto against = [&](const PlanRequest& request) {
    return error_of_certificate([&] { CertifiedJob(request).check(certificate); });
  };
  using testing::HasSubstr;
  EXPECT_EQ(against(small_request()), "no error");
  EXPECT_THAT(against(small_request(2)), HasSubstr("it is for ranks 4, and the job has 2"));
  EXPECT_THAT(against(small_request(4, 1, {"model.layers=3"})), HasSubstr("it is for step "));
  PlanRequest other = small_request();
  other.memory_bytes = int64_t{1} << 33;
  EXPECT_THAT(against(other), HasSubstr("it is for memory 17179869184, and the job has 8589934592"));
  other = small_request();
  other.threads = 2;
  EXPECT_THAT(against(other), HasSubstr("it is for threads 1, and the job has 2"));
  // The same graph, computed in another type: other prices.
  EXPECT_THAT(against(small_request(4, 1, {"train.dtype=bf16"})), HasSubstr("certificate: "));
  Certificate other_machine = certificate;
  other_machine.machine_hash = "0000000000000000";
  EXPECT_THAT(error_of_certificate([&] { CertifiedJob(small_request()).check(other_machine); }),
              HasSubstr("it is for machine "));
}

TEST(ExactCertificate, of_another_plan_is_refused_naming_what_differs) {
  const ExactPlan plan = plan_exact(small_request(4, 3));
  const Certificate certificate = certificate_of(plan, small_request(4, 3));
  const PlanFile file = plan_file(plan, 4);
  const auto against = [&](auto change) {
    PlanFile other = file;
    change(other);
    return error_of_certificate([&] { check_certified_plan(certificate, other); });
  };
  using testing::HasSubstr;
  EXPECT_EQ(against([](PlanFile&) {}), "no error");
  EXPECT_THAT(against([](PlanFile& p) { p.graph = "1"; }), HasSubstr("it is for step "));
  EXPECT_THAT(against([](PlanFile& p) { p.ranks = 8; }), HasSubstr("it is for ranks 4, and the plan is for 8"));
  EXPECT_THAT(against([](PlanFile& p) { p.keys[6] = "parallel.tp=3"; }), HasSubstr("but the plan has parallel.tp=3"));
  EXPECT_THAT(against([](PlanFile& p) { p.keys.pop_back(); }), HasSubstr("its best way has "));
  EXPECT_THAT(against([](PlanFile& p) { --p.step_ps; }), HasSubstr("the plan predicts other figures"));
  EXPECT_THAT(against([](PlanFile& p) { ++p.arena_bytes; }), HasSubstr("the plan predicts other figures"));
  EXPECT_THAT(against([](PlanFile& p) { ++p.ledger.fit; }), HasSubstr("its ledger differs from that of the plan"));
}

// Changes of a certificate's text, as a mistake or a hand would make them.
class CertificateMutation {
 public:
  CertificateMutation(std::string text, uint64_t seed) : text_(std::move(text)), random_(seed) {}

  std::string mutated() {
    lines_.clear();
    for (size_t at = 0; at < text_.size();) {
      const size_t end = text_.find('\n', at);
      lines_.push_back(text_.substr(at, end - at));
      at = end + 1;
    }
    lines_.pop_back();  // the checksum
    kind_ = below(9);
    switch (kind_) {
      case 0:
        change_number([&](int64_t n) { return n + 1; });
        break;
      case 1:
        change_number([&](int64_t n) { return n > 0 ? n - 1 : 7; });
        break;
      case 2:
        change_number([&](int64_t n) { return n * 2 + 1; });
        break;
      case 3:
        change_number([&](int64_t n) { return n / 10; });
        break;
      case 4:
        change_letter();
        break;
      case 5:
        lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(below(lines_.size())));
        break;
      case 6:
        lines_.resize(1 + below(lines_.size() - 1));
        break;
      case 7:
        std::swap(lines_[below(lines_.size())], lines_[below(lines_.size())]);
        break;
      default:
        lines_.insert(lines_.begin() + static_cast<std::ptrdiff_t>(below(lines_.size())), some_line());
        break;
    }
    std::string out;
    for (const std::string& line : lines_) out += line + "\n";
    return sealed_certificate(out);
  }
  int kind() const { return static_cast<int>(kind_); }
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }

 private:
  std::string& some_line() { return lines_[below(lines_.size())]; }

  // One number of one line.
  template <class Change>
  void change_number(Change change) {
    while (true) {
      std::string& line = some_line();
      std::vector<std::pair<size_t, size_t>> numbers;
      for (size_t at = line.find_first_of("0123456789"); at != std::string::npos;) {
        const size_t end = std::min(line.find_first_not_of("0123456789", at), line.size());
        if (end - at < 16) numbers.emplace_back(at, end - at);
        at = line.find_first_of("0123456789", end);
      }
      if (numbers.empty()) continue;
      const auto [at, size] = numbers[below(numbers.size())];
      const std::string now = line.substr(at, size), then = fmt::format("{}", change(std::stoll(now)));
      if (now == then) continue;
      line.replace(at, size, then);
      return;
    }
  }
  void change_letter() {
    std::string& line = some_line();
    char& letter = line[below(line.size())];
    const char before = letter;
    while (letter == before) letter = static_cast<char>(' ' + below(95));
  }

  std::string text_;
  std::mt19937_64 random_;
  std::vector<std::string> lines_;
  size_t kind_ = 0;
};

// Whoever changes a certificate can make its checksum again; so it is made again, and what is caught is caught by the
// proof, by the plan or by the job.
TEST(ExactCertificate, every_one_of_a_thousand_mutations_is_caught) {
  const PlanRequest request = small_request(4, 150);
  const ExactPlan plan = plan_exact(request);
  const Certificate certificate = certificate_of(plan, request);
  ASSERT_TRUE(std::ranges::any_of(plan.best, [](const ExactWay& way) { return way.outer.pp > 1; }));
  CertifiedJob job(request);
  const PlanFile file = plan_file(plan, 4);
  const std::string text = to_string(certificate);
  std::map<int, int> kinds;
  int by_text = 0, by_proof = 0, by_job = 0;
  for (uint64_t seed = 1; kinds.size() < 9 || by_text + by_proof + by_job < 1'000; ++seed) {
    CertificateMutation mutation(text, seed);
    const std::string mutated = mutation.mutated();
    if (mutated == text) continue;  // two equal lines, or one that was swapped with itself
    ++kinds[mutation.kind()];
    const std::string first = error_of_certificate([&] { parse_certificate(mutated); });
    if (first != "no error") {
      ++by_text;
      continue;
    }
    const Certificate changed = parse_certificate(mutated);
    if (error_of_certificate([&] { verify_certificate(changed); }) != "no error") {
      ++by_proof;
      continue;
    }
    ASSERT_NE(error_of_certificate([&] { check_all(mutated, file, job); }), "no error") << mutated;
    ++by_job;
  }
  EXPECT_GT(by_text, 100);
  EXPECT_GT(by_proof, 100);
  EXPECT_GT(by_job, 20);
  RecordProperty("caught by", fmt::format("text {}, proof {}, plan or job {}", by_text, by_proof, by_job));
}

// Without making the checksum again every change is caught at once.
TEST(ExactCertificate, the_checksum_covers_every_byte) {
  const std::string text = to_string(certificate_of(plan_exact(small_request(2, 1)), small_request(2, 1)));
  CertificateMutation random("", 1);
  for (int i = 0; i < 1'000; ++i) {
    std::string changed = text;
    char& byte = changed[random.below(changed.size())];
    byte = static_cast<char>(byte ^ (1 << random.below(8)));
    ASSERT_NE(error_of_certificate([&] { parse_certificate(changed); }), "no error") << i;
  }
}

}  // namespace
}  // namespace trireme::exact_certificate_test
