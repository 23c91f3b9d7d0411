#include "trireme/launch/rank/rank_info.h"

#include <unistd.h>

#include <cerrno>

#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/comm/transports/hangup.h"
#include "trireme/launch/rank/failure.h"
#include "trireme/launch/rank/rank_page.h"
#include "trireme/launch/rank/stacks.h"
#include "trireme/launch/start/rendezvous.h"
#include "trireme/launch/start/secret.h"

namespace trireme::launch {

namespace {

std::optional<comm::Secret> find_secret() {
  const auto file = flag_text("TRIREME_SECRET_FILE");
  const auto text = flag_text("TRIREME_SECRET");
  if (!file && !text) return std::nullopt;
  const comm::Secret secret = file ? read_secret(*file, "TRIREME_SECRET_FILE") : comm::secret_from_hex(*text);
  require(!file || !text || secret == comm::secret_from_hex(*text),
          "job secret: TRIREME_SECRET and TRIREME_SECRET_FILE='{}' differ; unset one of them", *file);
  return secret;
}

}  // namespace

RankInfo find_rank() {
  comm::take_hangup_from_ucx();
  RankInfo info = describe_start(flag_values(), read_file);
  if (info.world > 1) info.secret = find_secret();
  require(!info.served || info.world == 1 || info.secret,
          "environment: {} but neither TRIREME_SECRET_FILE nor TRIREME_SECRET is set; start the ranks "
          "with 'trireme launch', which gives them the job's secret",
          info.evidence);
  return info;
}

bool report_failure(const Error& error) {
  const auto fd = flag_int("TRIREME_ERROR_FD", 3, 1'000'000);
  if (!fd) return false;
  const std::string message = encode(Failure{.kind = error.kind(), .text = error.what()});
  std::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t n = write(static_cast<int>(*fd), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

void note_step() {
  if (RankPage* const page = own_page()) page->steps.fetch_add(1);
}

void note_interrupt(int signal, bool sent_here) {
  RankPage* const page = own_page();
  if (page == nullptr) return;
  page->interrupted.store(signal);
  if (sent_here) page->was_sent.store(true);
}

void note_saves_when_asked(bool saves) {
  if (RankPage* const page = own_page()) page->saves_when_asked.store(saves);
}

std::unique_ptr<comm::World> join(const RankInfo& info, const JoinOptions& join_options) {
  const std::chrono::seconds deadline(flag_int("TRIREME_START_TIMEOUT", 1, 86'400).value_or(300));
  comm::WorldOptions options;
  options.rank = info.rank;
  options.size = info.world;
  options.transport = join_options.transport;
  options.join_deadline = deadline;
  RankPage* const page = own_page();
  if (page != nullptr) {
    answer_trace_requests(*page);
    options.on_wait = [page](std::string_view what) { page->tell(what, comm::kLongWait_s); };
    options.watch = std::make_shared<PageWatch>(*page);
    page->tell(fmt::format("[rank {} of {}] joins the job: waits for the other ranks", info.rank, info.world));
    page->joining.store(true);
  }
  options.log = flag_text("TRIREME_WORKER_LOG").value_or("");
  std::string place = "no other";
  std::function<int64_t()> refused;
  if (options.transport == "mpi") {
    place = "each other by MPI";
  } else if (info.world > 1) {
    const bool insecure = join_options.insecure || flag_bool("TRIREME_INSECURE").value_or(false);
    Meeting meeting = meet(info, insecure, deadline);
    options.store = std::move(meeting.store);
    place = std::move(meeting.place);
    refused = std::move(meeting.refused);
  }
  TRIREME_LOG(kInfo, "launch", "rank {} of {}, started by {}{}, meets {}", info.rank, info.world, info.started_by,
              info.evidence.empty() ? "" : fmt::format(" ({})", info.evidence), place);
  std::unique_ptr<comm::World> world;
  try {
    world = comm::connect(options);
  } catch (Error& e) {
    if (const int64_t times = e.kind() == ErrorKind::kTimeout && refused ? refused() : 0; times > 0) {
      e.note(
          fmt::format("{} connection{} refused because the job's secret was not proven: do all ranks have the same "
                      "TRIREME_SECRET_FILE?",
                      times, times == 1 ? " was" : "s were"));
    }
    throw;
  }
  if (page != nullptr) {
    page->joined.store(true);
    page->joining.store(false);
    page->tell("");
  }
  return world;
}

}  // namespace trireme::launch
