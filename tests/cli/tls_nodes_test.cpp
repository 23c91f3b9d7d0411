// Jobs of several nodes whose connections to the scheduler are encrypted.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "tests/cli/nodes.h"

namespace trireme::cli::tls_nodes_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// Certificates of an authority, made by the openssl program.
class TlsNodesTest : public NodesTest {
 protected:
  void shell(const std::string& command) const {
    ASSERT_EQ(std::system(fmt::format("cd {} && ({}) > openssl.log 2>&1", dir_, command).c_str()), 0)
        << read(path("openssl.log"));
  }
  void make_authority(const std::string& name) const {
    shell(
        fmt::format("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {0}.key -out {0}.pem "
                    "-days 365 -subj /CN={0}",
                    name));
  }
  void make_certificate(const std::string& name, const std::string& authority, int days) const {
    shell(fmt::format(
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {0}.key -out {0}.csr -subj "
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
  EXPECT_THAT(first.err, Not(HasSubstr("expires in")));
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
    EXPECT_THAT(outcome.err, HasSubstr("within 1 s ("));
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
  EXPECT_THAT(soon_over.err, testing::ContainsRegex("the certificate 'node.pem' expires in [23] days, on "));
  ::chmod(path("node.key").c_str(), 0644);
  EXPECT_THAT(error_line(run(words)),
              HasSubstr("tls: the key 'node.key' has mode 0644, so others can read it; make it 0600"));
  ::chmod(path("node.key").c_str(), 0600);
  write("node.pem", "none");
  EXPECT_EQ(error_line(run(words)), "tls: 'node.pem' has no certificate in PEM form");
  const Words without_key{"launch", "--nnodes", "1", "-n", "1", "--tls-cert", "node.pem", "--tls-ca", "ca.pem", "true"};
  EXPECT_EQ(error_line(run(without_key)), "tls: 'node.pem' has no certificate in PEM form, nor is it a PKCS#12 bundle");
  make_certificate("node", "ca", 3);
  EXPECT_THAT(error_line(run(without_key)), HasSubstr("--tls-key is missing"));
  EXPECT_THAT(error_line(run({"launch", "--nnodes", "1", "-n", "1", "--tls-cert", "node.pem", "true"})),
              HasSubstr("--tls-ca is missing"));
}

// The form in which MindSpore takes them: certificate and encrypted key in one file.
TEST_F(TlsNodesTest, AnEncryptedKeyOpensWithItsPasswordAlone) {
  make_authority("ca");
  make_certificate("node", "ca", 365);
  write("password", "open sesame\n");
  ::chmod(path("password").c_str(), 0600);
  shell(
      "openssl pkcs12 -export -in node.pem -inkey node.key -passout pass:'open sesame' -out node.p12 && chmod 600 "
      "node.p12 && "
      "openssl pkcs8 -topk8 -in node.key -passout pass:'open sesame' -out closed.key && chmod 600 closed.key");
  const Words bundle{"--tls-cert", "node.p12", "--tls-ca", "ca.pem", "--tls-password-file", "password"};
  const Words closed{"--tls-cert", "node.pem", "--tls-key",           "closed.key",
                     "--tls-ca",   "ca.pem",   "--tls-password-file", "password"};
  Program zero = node(0, 2, {"true"}, bundle, 1);
  Program one = node(1, 2, {"true"}, closed, 1);
  const Outcome first = finish(zero);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(finish(one).code, 0);

  const auto launched = [&](const Words& tls) {
    Words words{"launch", "--nnodes", "1", "-n", "1"};
    append(words, tls);
    words.push_back("true");
    return words;
  };
  EXPECT_EQ(run(launched(bundle)).code, 0);
  EXPECT_EQ(error_line(run(launched({bundle.begin(), bundle.begin() + 4}))),
            "tls: the bundle 'node.p12' needs a password; give --tls-password-file, or set TRIREME_TLS_PASSWORD");
  // From the environment, where the ranks do not find it.
  const Outcome told = run(
      [&] {
        Words words = launched({bundle.begin(), bundle.begin() + 4});
        words.back() = "env";
        return words;
      }(),
      {"TRIREME_TLS_PASSWORD=open sesame"});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("RANK=0"));
  EXPECT_THAT(told.out, testing::Not(HasSubstr("open sesame")));
  write("password", "open barley");
  EXPECT_EQ(error_line(run(launched(bundle))), "tls: the password in 'password' does not open the bundle 'node.p12'");
  EXPECT_EQ(error_line(run(launched(closed))), "tls: the password in 'password' does not open the key 'closed.key'");
  ::chmod(path("password").c_str(), 0644);
  EXPECT_EQ(error_line(run(launched(closed))),
            "tls: the password file 'password' has mode 0644, so others can read it; make it 0600");
  make_certificate("other", "ca", 365);
  EXPECT_EQ(error_line(run(launched({"--tls-cert", "node.pem", "--tls-key", "other.key", "--tls-ca", "ca.pem"}))),
            "tls: the key 'other.key' is not that of the certificate 'node.pem'");
}

TEST_F(TlsNodesTest, ACertificateThatWasTakenBackIsRefused) {
  make_authority("ca");
  make_certificate("node", "ca", 365);
  make_certificate("lost", "ca", 365);
  shell(
      "touch index && echo 01 > number && printf "
      "'[ca]\ndefault_ca=job\n[job]\ndatabase=index\ncrlnumber=number\ndefault_md=sha256\n"
      "default_crl_days=30\n' > ca.cnf && openssl ca -config ca.cnf -keyfile ca.key -cert ca.pem -revoke lost.pem && "
      "openssl ca -config ca.cnf -keyfile ca.key -cert ca.pem -gencrl -out crl.pem");
  Words with_list = tls("node", "ca");
  append(with_list, {"--tls-crl", "crl.pem"});
  Program sched = scheduler(1, with_list);
  Words words = tls("lost", "ca");  // it knows nothing of the list
  append(words, {"--window", "5"});
  Program lost = agent("lost", 1, "touch ran", words);
  const Outcome outcome = finish(lost);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("the certificate of 'CN = lost' was revoked on "));
  EXPECT_FALSE(fs::exists(path("ran")));
  Program right = agent("right", 1, "true", with_list);
  EXPECT_EQ(finish(right).code, 0);
  EXPECT_EQ(finish(sched).code, 0);

  Program taken_back = scheduler(1, tls("lost", "ca"));
  append(with_list, {"--window", "5"});
  Program careful = agent("careful", 1, "touch ran", with_list);
  const Outcome refused = finish(careful);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("the certificate of 'CN = lost' was revoked on "));
  EXPECT_FALSE(fs::exists(path("ran")));
  ::kill(taken_back.pid, SIGKILL);
  finish(taken_back);

  Words own = tls("lost", "ca");
  append(own, {"--tls-crl", "crl.pem"});
  const auto launched = [&](const Words& tls) {
    Words all{"launch", "--nnodes", "1", "-n", "1"};
    append(all, tls);
    all.push_back("true");
    return all;
  };
  EXPECT_THAT(error_line(run(launched(own))), HasSubstr("tls: the certificate of 'CN = lost' was revoked on "));
  EXPECT_THAT(error_line(run({"launch", "--nnodes", "1", "-n", "1", "--tls-crl", "crl.pem", "true"})),
              HasSubstr("--tls-cert is missing"));
  write("crl.pem", "none");
  EXPECT_EQ(error_line(run(launched(with_list))), "tls: 'crl.pem' has no list of revoked certificates in PEM form");
  make_authority("strange");
  shell(
      "rm index number && touch index && echo 01 > number && openssl ca -config ca.cnf -keyfile strange.key -cert "
      "strange.pem -gencrl -out crl.pem");
  EXPECT_EQ(
      error_line(run(launched(with_list))),
      "tls: the list of revoked certificates 'crl.pem' is of 'CN = strange', which is not an authority of --tls-ca");
}

}  // namespace
}  // namespace trireme::cli::tls_nodes_test
