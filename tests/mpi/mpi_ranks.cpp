// Run by mpirun: the collectives over MPI against plain computations. Exits with 1 and says why on
// an error.
#include <mpi.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/tensor/host_tensor.h"

namespace {
std::atomic<int> communicators = 0;  // of groups
constexpr int kMostTag = 100;        // that this MPI says it takes, and does
}  // namespace

// Called in place of MPI's own, which are found under the names that begin with P.
extern "C" int MPI_Comm_create_group(MPI_Comm of, MPI_Group members, int tag, MPI_Comm* made) {
  ++communicators;
  return PMPI_Comm_create_group(of, members, tag, made);
}
extern "C" int MPI_Comm_dup(MPI_Comm of, MPI_Comm* made) {
  ++communicators;
  return PMPI_Comm_dup(of, made);
}
extern "C" int MPI_Comm_get_attr(MPI_Comm communicator, int key, void* value, int* is_known) {
  static int most = kMostTag;
  const int status = PMPI_Comm_get_attr(communicator, key, value, is_known);
  if (key == MPI_TAG_UB) *static_cast<int**>(value) = &most;
  return status;
}
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator,
                         MPI_Request* request) {
  if (tag > kMostTag) return MPI_ERR_TAG;
  return PMPI_Isend(data, count, type, to, tag, communicator, request);
}
extern "C" int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm communicator,
                         MPI_Request* request) {
  if (tag > kMostTag) return MPI_ERR_TAG;
  return PMPI_Irecv(data, count, type, from, tag, communicator, request);
}
extern "C" int MPI_Comm_free(MPI_Comm* communicator) {
  --communicators;
  return PMPI_Comm_free(communicator);
}

namespace {

using namespace trireme;
using comm::Reduce;

void expect_equal(double got, double wanted, std::string_view what) {
  require(got == wanted, "{}: got {}, expected {}", what, got, wanted);
}

HostTensor filled(int rank, int64_t count) {
  HostTensor out(TensorType{DType::kF32, Shape{count}});
  for (int64_t i = 0; i < count; ++i) {
    out.as<float>()[static_cast<size_t>(i)] = static_cast<float>((i * 7 + rank * 3) % 11);
  }
  return out;
}

void check_collectives(comm::World& world, int64_t count) {
  const int p = world.size();
  const HostTensor sum = filled(world.rank(), count);
  world.all().all_reduce(sum.view(), Reduce::kSum).wait();
  for (int64_t i = 0; i < count; ++i) {
    int64_t wanted = 0;
    for (int r = 0; r < p; ++r) wanted += (i * 7 + r * 3) % 11;
    expect_equal(sum.as<float>()[static_cast<size_t>(i)], static_cast<double>(wanted), "all_reduce");
  }

  const HostTensor piece = filled(world.rank(), count);
  const HostTensor whole(TensorType{DType::kF32, Shape{p * count}});
  world.all().all_gather(piece.view(), whole.view()).wait();
  for (int64_t i = 0; i < p * count; ++i) {
    const int64_t r = i / count;
    expect_equal(whole.as<float>()[static_cast<size_t>(i)], static_cast<double>((i % count * 7 + r * 3) % 11),
                 "all_gather");
  }

  world.all().reduce_scatter(whole.view(), piece.view(), Reduce::kSum).wait();
  for (int64_t i = 0; i < count; ++i) {
    expect_equal(piece.as<float>()[static_cast<size_t>(i)], static_cast<double>(p * ((i * 7 + world.rank() * 3) % 11)),
                 "reduce_scatter");
  }

  const HostTensor in = filled(world.rank(), p * count);
  world.all().all_to_all(in.view(), whole.view()).wait();
  for (int64_t i = 0; i < p * count; ++i) {
    const int64_t at = world.rank() * count + i % count;
    expect_equal(whole.as<float>()[static_cast<size_t>(i)], static_cast<double>((at * 7 + i / count * 3) % 11),
                 "all_to_all");
  }

  const HostTensor data = filled(world.rank(), count);
  world.all().broadcast(data.view(), p - 1).wait();
  expect_equal(data.as<float>()[static_cast<size_t>(count - 1)],
               static_cast<double>(((count - 1) * 7 + (p - 1) * 3) % 11), "broadcast");
}

void check_messages(comm::World& world) {
  const int p = world.size();
  const HostTensor out = filled(world.rank(), 100'000);
  const HostTensor in(out.type());
  comm::Work sent = world.all().send(out.view(), (world.rank() + 1) % p, 3);
  comm::Work received = world.all().recv(in.view(), (world.rank() + p - 1) % p, 3);
  sent.wait();
  received.wait();
  const HostTensor wanted = filled((world.rank() + p - 1) % p, 100'000);
  require(std::memcmp(in.view().data, wanted.view().data, static_cast<size_t>(in.view().bytes())) == 0,
          "send and recv around the ring: the data differ");
}

// Tags up to the bound in both ranges that users have, which do not meet each other or those of collectives, however
// many there are. Beyond it they are refused, on both sides, and the world goes on.
void check_tags(comm::World& world) {
  const int p = world.size();
  const int next = (world.rank() + 1) % p;
  const int before = (world.rank() + p - 1) % p;
  const std::vector<int> tags{kMostTag, (1 << 29) + kMostTag};
  std::vector<HostTensor> out, in;
  for (const int tag : tags) {
    out.push_back(HostTensor::of<int32_t>({1}, std::vector<int32_t>{tag + world.rank()}));
    in.emplace_back(TensorType{DType::kI32, Shape{1}});
  }
  std::vector<comm::Work> works;
  for (size_t i = tags.size(); i-- > 0;) works.push_back(world.all().send(out[i].view(), next, tags[i]));
  for (int i = 0; i < kMostTag / 2; ++i) check_collectives(world, 1);  // five turns each
  for (size_t i = 0; i < tags.size(); ++i) works.push_back(world.all().recv(in[i].view(), before, tags[i]));
  for (comm::Work& work : works) work.wait();
  for (size_t i = 0; i < tags.size(); ++i)
    expect_equal(in[i].as<int32_t>()[0], tags[i] + before, "a message by its tag");
  for (const int tag : tags) {
    std::string why;
    try {
      world.all().recv(in[0].view(), before, tag + 1).wait();
    } catch (const Error& e) {
      why = e.text();
    }
    require(why.find("tag " + std::to_string(tag + 1) + "; this MPI takes tags up to 100 (MPI_TAG_UB)") !=
                std::string::npos,
            "a tag that this MPI has not: '{}'", why);
  }
}

// A message of several parts of which one is wrong: all of them have ended when it has failed, and the next message of
// the tag arrives where it belongs.
void check_parts(comm::World& world) {
  const int p = world.size();
  const int next = (world.rank() + 1) % p;
  const int before = (world.rank() + p - 1) % p;
  constexpr int64_t kRoom = (int64_t{1} << 30) + 64;  // of which nothing is touched
  void* const room = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(room != MAP_FAILED, "no room for a large message");
  const HostTensor sent = filled(world.rank(), 2), received = filled(world.rank(), 2);
  comm::Work first = world.all().send(sent.view(), next, 7);
  std::string why;
  try {
    world.all().recv({static_cast<std::byte*>(room), {DType::kU8, Shape{kRoom}}}, before, 7).wait();
  } catch (const Error& e) {
    why = e.text();
  }
  require(why.find("sent 8 bytes where 1073741888 were expected") != std::string::npos, "a message too short: '{}'",
          why);
  munmap(room, kRoom);
  world.all().barrier().wait();  // what comes before a message has failed may be taken for its next part
  comm::Work second = world.all().send(sent.view(), next, 7);
  world.all().recv(received.view(), before, 7).wait();
  first.wait();
  second.wait();
  for (size_t i = 0; i < 2; ++i)
    expect_equal(received.as<float>()[i], filled(before, 2).as<float>()[i], "the message after one too short");
}

void check_group(comm::World& world) {
  if (world.size() < 4 || world.rank() % 2 == 0 || world.rank() > 3) return;
  comm::Group& group = world.group({3, 1});
  const HostTensor own = HostTensor::of<int32_t>({1}, std::vector<int32_t>{world.rank()});
  const HostTensor both(TensorType{DType::kI32, Shape{2}});
  group.all_gather(own.view(), both.view()).wait();
  expect_equal(both.as<int32_t>()[0], 3, "first of group [3,1]");
  expect_equal(both.as<int32_t>()[1], 1, "second of group [3,1]");
}

// A group that is destroyed leaves nothing, and the next one is a group as well.
void check_destroyed(comm::World& world) {
  std::vector<int> everyone;
  for (int rank = world.size(); rank-- > 0;) everyone.push_back(rank);
  const int before = communicators;
  for (int i = 0; i < 3; ++i) {
    comm::Group& group = world.group(everyone);
    const HostTensor sum = HostTensor::of<int32_t>({1}, std::vector<int32_t>{world.rank()});
    group.all_reduce(sum.view(), Reduce::kSum).wait();
    expect_equal(sum.as<int32_t>()[0], world.size() * (world.size() - 1) / 2, "sum of a group made anew");
    expect_equal(communicators - before, world.size() > 1 ? 3 : 0, "communicators of the group");
    if (world.size() == 1) return;  // that is the world itself
    world.destroy(group);
    expect_equal(communicators, before, "communicators of a group that is destroyed");
  }
}

}  // namespace

int main() {
  try {
    const auto world = comm::connect({.transport = "mpi"});
    require(world->transport() == "mpi", "the transport is '{}'", world->transport());
    for (const int64_t count : {1, 1001, 300'007}) check_collectives(*world, count);
    check_messages(*world);
    check_tags(*world);
    check_parts(*world);
    check_group(*world);
    check_destroyed(*world);
    world->all().barrier().wait();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
