#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

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
  m.def("set_threads", [](int n) {
    require(n >= 1 && n <= 256, "threads: expected 1 to 256, got " + std::to_string(n));
    nb::gil_scoped_release release;
    set_pool_size(n);
  });
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
}
