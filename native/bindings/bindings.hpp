#pragma once
#include "core/arrays.hpp"
#include "core/dispatch.hpp"

namespace mn {

// One function a topic, each in the file of its name.
void bind_elementwise(nb::module_& m);
void bind_kda(nb::module_& m);
void bind_logits(nb::module_& m);
void bind_peaks(nb::module_& m);
void bind_matrix(nb::module_& m);
void bind_packing(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_experts(nb::module_& m);
void bind_mla(nb::module_& m);
void bind_npu(nb::module_& m);

}  // namespace mn
