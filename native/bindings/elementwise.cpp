#include "kernels/elementwise.hpp"

#include "bindings/bindings.hpp"

namespace mn {

void bind_elementwise(nb::module_& m) {
  m.def(
      "rms_norm",
      [](In<float> x, In<float> weight, Out<float> y, float eps) {
        require(x.ndim() == 2, "x: expected [rows, width], got " + shape_text(x));
        int64_t rows = x.shape(0), width = x.shape(1);
        require_shape(weight, {width}, "weight");
        require_shape(y, {rows, width}, "y");
        nb::gil_scoped_release release;
        rms_norm({x.data(), weight.data(), y.data(), rows, width, eps});
      },
      nb::arg("x").noconvert(), nb::arg("weight").noconvert(), nb::arg("y").noconvert(), nb::arg("eps"));
}

}  // namespace mn
