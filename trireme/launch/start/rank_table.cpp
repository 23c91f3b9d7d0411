#include "trireme/launch/start/rank_table.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/strict_json_impl.h"

namespace trireme::launch {
namespace {

using nlohmann::json;

constexpr int kMostRanks = 65'536;

class Parser {
 public:
  explicit Parser(const std::string& where) : where_(where) {}

  RankTable parse(const json& table) {
    check_keys(table, "the table", {"version", "server_count", "status", "server_list"});
    const std::string version = text_of(table, "the table", "version");
    require(version == "1.0", "{}: version is '{}'; only '1.0' is known", where_, version);
    const std::string status = text_of(table, "the table", "status");
    require(status == "completed", "{}: status is '{}'; a table that can be used says 'completed'", where_, status);
    const json& servers = list_of(table, "the table", "server_list");
    const int count = number_of(table, "the table", "server_count");
    require(count == static_cast<int>(servers.size()), "{}: server_count is '{}' but server_list has {} servers",
            where_, count, servers.size());
    for (size_t i = 0; i < servers.size(); ++i) {
      add_server(servers[i], fmt::format("server_list[{}]", i));
    }
    return finish(count);
  }

 private:
  struct Found {
    std::string server;
    int device = 0;
    std::string place;  // in the file
  };

  void add_server(const json& server, const std::string& place) {
    check_keys(server, place, {"server_id", "host_nic_ip", "device"});
    const std::string id = text_of(server, place, "server_id");
    require(!id.empty(), "{}: {}.server_id is empty; it is the address of that host", where_, place);
    require(servers_.insert(id).second, "{}: server_id '{}' appears twice", where_, id);
    const json& devices = list_of(server, place, "device");
    std::set<int> seen;
    for (size_t i = 0; i < devices.size(); ++i) {
      const std::string here = fmt::format("{}.device[{}]", place, i);
      check_keys(devices[i], here, {"device_id", "device_ip", "rank_id"});
      const int device = number_of(devices[i], here, "device_id");
      const int rank = number_of(devices[i], here, "rank_id");
      require(seen.insert(device).second, "{}: {} and another device of '{}' have device_id '{}'", where_, here, id,
              device);
      const auto [at, fresh] = ranks_.try_emplace(rank, Found{id, device, here});
      require(fresh, "{}: {} and {} have rank_id '{}'; each rank has one device", where_, at->second.place, here, rank);
    }
  }

  RankTable finish(int count) const {
    RankTable table;
    table.servers = count;
    std::map<std::string, int> ranks_of;
    const Found* last = nullptr;
    for (const auto& [rank, found] : ranks_) {
      require(rank == static_cast<int>(table.ranks.size()),
              "{}: there are {} devices but none has rank_id '{}'; ranks go from 0 to {}", where_, ranks_.size(),
              table.ranks.size(), ranks_.size() - 1);
      require(last == nullptr || last->server <= found.server,
              "{}: rank {} is on '{}' and rank {} on '{}'; the order of rank_id must follow the "
              "lexical order of server_id",
              where_, rank - 1, last ? last->server : "", rank, found.server);
      last = &found;
      table.ranks.push_back({found.server, found.device, ranks_of[found.server]++, 1});
    }
    for (RankTable::Entry& entry : table.ranks) entry.local_world = ranks_of[entry.server];
    return table;
  }

  void check_keys(const json& object, const std::string& place, const std::vector<std::string>& known) const {
    require(object.is_object(), "{}: {} is {}, not an object", where_, place, object.type_name());
    for (const auto& [key, value] : object.items()) {
      require(std::ranges::find(known, key) != known.end(), "{}: {} has the unknown key '{}'.{}", where_, place, key,
              suggestion(key, known));
    }
  }

  const json& member(const json& object, const std::string& place, const char* key) const {
    const auto at = object.find(key);
    require(at != object.end(), "{}: {} has no '{}'", where_, place, key);
    return *at;
  }

  std::string text_of(const json& object, const std::string& place, const char* key) const {
    const json& value = member(object, place, key);
    require(value.is_string(), "{}: {}.{} is {} {}; all values are strings, as in \"{}\"", where_, place, key,
            value.type_name(), shown(value), shown(value));
    return value.get<std::string>();
  }

  int number_of(const json& object, const std::string& place, const char* key) const {
    const std::string text = text_of(object, place, key);
    int value = -1;
    const char* end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value);
    require(status == std::errc() && stop == end && value >= 0 && value < kMostRanks,
            "{}: {}.{} is '{}'; it must be a whole number from 0 to {}", where_, place, key, text.substr(0, 40),
            kMostRanks - 1);
    return value;
  }

  const json& list_of(const json& object, const std::string& place, const char* key) const {
    const json& value = member(object, place, key);
    require(value.is_array() && !value.empty() && value.size() <= kMostRanks,
            "{}: {}.{} must be a list of 1 to {} entries", where_, place, key, kMostRanks);
    return value;
  }

  static std::string shown(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40);
  }

  const std::string& where_;
  std::set<std::string> servers_;
  std::map<int, Found> ranks_;
};

}  // namespace

RankTable parse_rank_table(std::string_view text, const std::string& where) {
  try {
    return Parser(where).parse(parse_json(text, where));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kCorrupt) throw;
    throw Error(ErrorKind::kInvalidArgument, e.text());  // who starts the job can mend it
  }
}

}  // namespace trireme::launch
