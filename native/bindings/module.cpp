#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings/bindings.hpp"
#include "core/pool.hpp"

NB_MODULE(_native, m) {
  using namespace mn;
  m.doc() = "MindNano's kernels. They take plain buffers with shapes and know no model.";
  m.def("isa", [] { return std::string(isa_name()); }, "The instruction set in use.");
  m.def("available_isas", &available_isas, "The instruction sets that this build and this processor have.");
  m.def("set_isa", [](const std::string& name) {
    require(set_isa(name), "instruction set '" + name + "' is not available here");
  });
  m.def("threads", &pool_size, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "set_threads",
      [](int n, const std::optional<std::vector<int>>& cpus) {
        require(n >= 1 && n <= 256, "threads: expected 1 to 256, got " + std::to_string(n));
        for (int cpu : cpus.value_or(std::vector<int>()))
          require(cpu >= 0 && cpu < 1024, "cpus: expected 0 to 1023 each, got " + std::to_string(cpu));
        nb::gil_scoped_release release;
        set_pool_size(n, cpus ? *cpus : pool_cpus());
      },
      nb::arg("threads"), nb::arg("cpus") = nb::none(),
      "Size of the thread pool. cpus: the processors that its threads, and every thread that calls a kernel, "
      "keep to (Linux): [] for any, None for what was chosen before.");
  m.def("cpus", &pool_cpus, nb::call_guard<nb::gil_scoped_release>(),
        "The processors that threads keep to; empty: any.");
  m.def("scratch_bytes", &scratch_bytes, "Bytes of scratch that the pool's threads hold.");
  bind_elementwise(m);
  bind_kda(m);
  bind_logits(m);
  bind_peaks(m);
  bind_matrix(m);
  bind_packing(m);
  bind_linear(m);
  bind_experts(m);
  bind_mla(m);
  bind_npu(m);
}
