// The compressed lists in SLURM's variables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

// "n[08-10,12],login" is n08, n09, n10, n12, login; brackets may stand anywhere in a name and more
// than once, as in "rack[1-2]n[0-3]", where the last runs fastest. Throws kInvalidArgument for what
// is no such list and for one of more than 65,536 hosts.
std::vector<std::string> expand_hosts(std::string_view list);

// "4(x2),3" is 4, 4, 3: the ranks on each host. Throws as above.
std::vector<int> expand_tasks(std::string_view list);

}  // namespace trireme::launch
