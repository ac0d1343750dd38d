#include "kernels/logits.hpp"

#include "bindings/bindings.hpp"

namespace mn {

void bind_logits(nb::module_& m) {
  m.def(
      "top_logits",
      [](In<float> logits, Out<int64_t> ids, Out<float> values) {
        require(logits.ndim() == 1, "logits: expected [vocabulary], got " + shape_text(logits));
        require(ids.ndim() == 1 && ids.shape(0) <= logits.shape(0),
                "ids: expected at most " + std::to_string(logits.shape(0)) + ", got " + shape_text(ids));
        int64_t count = logits.shape(0), n = ids.shape(0);
        require_shape(values, {n}, "values");
        if (n == 0) return;
        nb::gil_scoped_release release;
        top_logits({logits.data(), ids.data(), values.data(), count, n});
      },
      nb::arg("logits").noconvert(), nb::arg("ids").noconvert(), nb::arg("values").noconvert());
  m.def(
      "logsumexp",
      [](In<float> logits) {
        require(logits.ndim() == 1 && logits.shape(0) > 0,
                "logits: expected [at least 1], got " + shape_text(logits));
        double result = 0;
        nb::gil_scoped_release release;
        logsumexp({logits.data(), static_cast<int64_t>(logits.shape(0)), &result});
        return result;
      },
      nb::arg("logits").noconvert());
}

}  // namespace mn
