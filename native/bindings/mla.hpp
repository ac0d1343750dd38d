// The cache views as Python holds them: they keep their arrays alive.
#pragma once
#include <string>
#include <vector>

#include "core/arrays.hpp"
#include "kernels/mla.hpp"
#include "kernels/mla_stages.hpp"

namespace mn {

struct LatentKV {
  LatentView view;
  std::vector<nb::object> owners;
};

struct ExpandedKV {
  ExpandedView view;
  std::vector<nb::object> owners;
};

Format parse_format(const std::string& name);
const char* format_text(Format format);
nb::tuple stage_seconds(const Stages& stages);  // (pack, matmul, softmax), a thread's share
void bind_history(nb::module_& m);

}  // namespace mn
