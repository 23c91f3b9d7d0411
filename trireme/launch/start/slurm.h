// The compressed lists in SLURM's variables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

// "n[08-10,12],login" is n08, n09, n10, n12, login; brackets may stand anywhere in a name and more
// than once, as in "rack[1-2]n[0-3]", where the last runs fastest. Names are made when they are asked for: all ranks
// read the list of all hosts, and need one of it.
class HostList {
 public:
  // Throws kInvalidArgument for what is no such list and for one of more than 65,536 hosts.
  explicit HostList(std::string_view list);

  size_t size() const { return size_; }  // 1 or more
  // i < size().
  std::string operator[](size_t i) const;

 private:
  struct Range {
    int first;
    size_t count;
    int width;  // digits at least
  };
  struct Bracket {
    std::vector<Range> ranges;
    size_t count = 0;
  };
  struct Name {
    std::vector<std::string> between;  // before, between and behind the brackets
    std::vector<Bracket> brackets;
    size_t count = 1;
  };
  static Bracket bracket_of(std::string_view list, std::string_view ranges);
  static Name name_of(std::string_view list, std::string_view name);

  std::vector<Name> names_;
  size_t size_ = 0;
};

// "4(x2),3" is 4, 4, 3: the ranks on each host. Throws as above.
std::vector<int> expand_tasks(std::string_view list);

}  // namespace trireme::launch
