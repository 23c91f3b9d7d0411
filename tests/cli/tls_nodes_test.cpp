// Jobs of several nodes whose connections to the scheduler are encrypted.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/nodes.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// Certificates of an authority, made by the openssl program.
class TlsNodesTest : public NodesTest {
 protected:
  void shell(const std::string& command) const {
    ASSERT_EQ(std::system(fmt::format("cd {} && ({}) > openssl.log 2>&1", dir_, command).c_str()), 0) << read(path("openssl.log"));
  }
  void make_authority(const std::string& name) const {
    shell(fmt::format("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {0}.key -out {0}.pem "
                      "-days 365 -subj /CN={0}", name));
  }
  void make_certificate(const std::string& name, const std::string& authority, int days) const {
    shell(fmt::format("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {0}.key -out {0}.csr -subj "
                      "/CN={0} && printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\n' > {0}.ext && openssl x509 -req -in {0}.csr "
                      "-CA {1}.pem -CAkey {1}.key -CAcreateserial -days {2} -extfile {0}.ext -out {0}.pem && chmod 600 {0}.key",
                      name, authority, days));
  }
  static Words tls(const std::string& name, const std::string& authority) {
    return {"--tls-cert", name + ".pem", "--tls-key", name + ".key", "--tls-ca", authority + ".pem"};
  }
};

TEST_F(TlsNodesTest, NodesWithCertificatesOfOneAuthorityMeet) {
  make_authority("ca");
  make_certificate("node", "ca", 365);
  Program zero = node(0, 2, {"true"}, tls("node", "ca"), 1);
  Program one = node(1, 2, {"true"}, tls("node", "ca"), 1);
  const Outcome first = finish(zero);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(finish(one).code, 0);
  EXPECT_THAT(first.err, Not(HasSubstr("ends in")));
}

TEST_F(TlsNodesTest, AStrangersCertificateAndNoneAreRefused) {
  make_authority("ca");
  make_authority("strange");
  make_certificate("node", "ca", 365);
  make_certificate("stranger", "strange", 365);
  Program sched = scheduler(1, tls("node", "ca"));
  // It holds the secret, but its certificate is another authority's; and it is asked for one.
  Words words = tls("stranger", "ca");
  append(words, {"--window", "1"});
  Program stranger = agent("stranger", 1, "touch ran", words);
  Program plain = agent("plain", 1, "touch ran", {"--window", "1"});
  for (Program* program : {&stranger, &plain}) {
    const Outcome outcome = finish(*program);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("was not to be reached within 1 s ("));
  }
  EXPECT_FALSE(fs::exists(path("ran")));
  Program right = agent("right", 1, "true", tls("node", "ca"));
  EXPECT_EQ(finish(right).code, 0);
  EXPECT_EQ(finish(sched).code, 0);
}

TEST_F(TlsNodesTest, CertificatesThatEndSoonOrAreNoneAreToldBeforeAnythingStarts) {
  make_authority("ca");
  make_certificate("node", "ca", 3);
  Words words{"launch", "--nnodes", "1", "-n", "1"};
  append(words, tls("node", "ca"));
  words.push_back("true");
  const Outcome soon_over = run(words);
  EXPECT_EQ(soon_over.code, 0) << soon_over.err;
  EXPECT_THAT(soon_over.err, testing::ContainsRegex("the certificate 'node.pem' ends in [23] days, on "));
  ::chmod(path("node.key").c_str(), 0644);
  EXPECT_THAT(error_line(run(words)), HasSubstr("tls: the key 'node.key' has mode 0644, so others can read it; make it 0600"));
  ::chmod(path("node.key").c_str(), 0600);
  write("node.pem", "none");
  EXPECT_EQ(error_line(run(words)), "tls: 'node.pem' has no certificate in PEM form");
  EXPECT_THAT(error_line(run({"launch", "--nnodes", "1", "-n", "1", "--tls-cert", "node.pem", "true"})), HasSubstr("--tls-key is missing"));
}

}  // namespace
}  // namespace trireme::cli
