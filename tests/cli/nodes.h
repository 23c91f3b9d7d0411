// Programs that are the nodes of one job, all on this host's loopback.
#pragma once

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "tests/cli/program.h"
#include "trireme/base/clock.h"

namespace trireme::cli {

class NodesTest : public CliTest {
 protected:
  NodesTest() { EXPECT_EQ(CliTest::run({"launch", "--make-secret", "secret"}).code, 0); }

  // A port that nobody uses now.
  static int free_port() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
    ::close(fd);
    return ntohs(address.sin_port);
  }

  static void append(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

  Program scheduler(int world, const Words& more = {}, int port = 0) {
    return scheduler(std::to_string(world), more, port);
  }
  Program scheduler(const std::string& world, const Words& more = {}, int port = 0,
                    const std::string& name = "scheduler") {
    Words words{"scheduler", "--world", world, "--port", std::to_string(port), "--secret-file", "secret"};
    append(words, more);
    Program program = begin(name, words);
    EXPECT_TRUE(soon([&] { return out_of(program).find('\n') != std::string::npos || !is_running(program); }))
        << err_of(program);
    const std::string out = out_of(program);
    const size_t at = out.find("127.0.0.1:");
    EXPECT_NE(at, std::string::npos) << out << err_of(program);
    if (at != std::string::npos) port_ = std::atoi(out.c_str() + at + 10);
    return program;
  }
  // An agent started by hand, which finds the scheduler running.
  Program agent(const std::string& name, int world, const std::string& script, const Words& more = {}) const {
    Words words{"launch", "--master", master(), "--world", std::to_string(world), "-n", "1", "--secret-file", "secret"};
    append(words, more);
    append(words, {"--", "sh", "-c", script});
    return begin(name, words);
  }
  // A node of a job of `nodes`, of which node 0 serves the scheduler at port_.
  Program node(int rank, int nodes, const Words& program, const Words& more = {}, int workers = 2) const {
    Words words{"launch",
                "--nnodes",
                std::to_string(nodes),
                "--node-rank",
                std::to_string(rank),
                "--master",
                master(),
                "-n",
                std::to_string(workers),
                "--secret-file",
                "secret"};
    append(words, more);
    words.push_back("--");
    append(words, program);
    return begin(fmt::format("node{}", rank), words);
  }
  std::string master() const { return fmt::format("127.0.0.1:{}", port_); }
  void touch(const std::string& name) const { write(name, ""); }
  size_t files_in(const std::string& folder) const {
    std::error_code missing;
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path(folder), missing),
                                             std::filesystem::directory_iterator()));
  }

  int port_ = free_port();
};

}  // namespace trireme::cli
