#include "kernels/packing.hpp"

#include "bindings/bindings.hpp"

namespace mn {
namespace {

struct Shape {
  int64_t rows, cols, panels, groups;
};

template <class A>
Shape matrix_shape(const A& array, const char* name) {
  require(array.ndim() == 2 && array.shape(0) >= 1 && array.shape(1) >= 1,
          std::string(name) + ": expected [N, K], both at least 1, got " + shape_text(array));
  int64_t rows = array.shape(0), cols = array.shape(1);
  return {rows, cols, (rows + 15) / 16, (cols + 31) / 32};
}

void require_finite(int64_t bad_row) {
  require(bad_row < 0,
          "w: expected magnitudes up to 1e18, row " + std::to_string(bad_row) + " holds more, or a NaN");
}

void require_range(In<int8_t> values, int low, int high) {
  for (size_t i = 0; i < values.size(); ++i)
    require(values.data()[i] >= low && values.data()[i] <= high,
            "values: expected " + std::to_string(low) + " to " + std::to_string(high) + ", got " +
                std::to_string(values.data()[i]));
}

}  // namespace

void bind_packing(nb::module_& m) {
  m.def(
      "quantize_w4",
      [](In<float> w, Out<uint8_t> data) {
        Shape s = matrix_shape(w, "w");
        require_shape(data, {s.panels, s.groups, 288}, "data");
        int64_t bad = -1;
        {
          nb::gil_scoped_release release;
          quantize_w4({w.data(), data.data(), s.rows, s.cols, &bad});
        }
        require_finite(bad);
      },
      nb::arg("w").noconvert(), nb::arg("data").noconvert());
  m.def(
      "pack_w4",
      [](In<int8_t> values, In<uint16_t> scales, Out<uint8_t> data) {
        Shape s = matrix_shape(values, "values");
        require_shape(scales, {s.rows, s.groups}, "scales");
        require_shape(data, {s.panels, s.groups, 288}, "data");
        require_range(values, -8, 7);
        nb::gil_scoped_release release;
        pack_w4({values.data(), scales.data(), data.data(), s.rows, s.cols});
      },
      nb::arg("values").noconvert(), nb::arg("scales").noconvert(), nb::arg("data").noconvert());
  m.def(
      "quantize_w8",
      [](In<float> w, Out<int8_t> data, Out<float> scales) {
        Shape s = matrix_shape(w, "w");
        require_shape(data, {s.panels, s.groups * 8, 64}, "data");
        require_shape(scales, {s.panels * 16}, "scales");
        int64_t bad = -1;
        {
          nb::gil_scoped_release release;
          quantize_w8({w.data(), data.data(), scales.data(), s.rows, s.cols, &bad});
        }
        require_finite(bad);
      },
      nb::arg("w").noconvert(), nb::arg("data").noconvert(), nb::arg("scales").noconvert());
  m.def(
      "pack_w8",
      [](In<int8_t> values, Out<int8_t> data) {
        Shape s = matrix_shape(values, "values");
        require_shape(data, {s.panels, s.groups * 8, 64}, "data");
        require_range(values, -127, 127);
        nb::gil_scoped_release release;
        pack_w8({values.data(), data.data(), s.rows, s.cols});
      },
      nb::arg("values").noconvert(), nb::arg("data").noconvert());
  m.def(
      "unpack_w4",
      [](In<uint8_t> data, Out<float> out) {
        Shape s = matrix_shape(out, "out");
        require_shape(data, {s.panels, s.groups, 288}, "data");
        nb::gil_scoped_release release;
        unpack_weights({4, data.data(), nullptr, out.data(), s.rows, s.cols});
      },
      nb::arg("data").noconvert(), nb::arg("out").noconvert());
  m.def(
      "unpack_w8",
      [](In<int8_t> data, In<float> scales, Out<float> out) {
        Shape s = matrix_shape(out, "out");
        require_shape(data, {s.panels, s.groups * 8, 64}, "data");
        require_shape(scales, {s.panels * 16}, "scales");
        nb::gil_scoped_release release;
        unpack_weights(
            {8, reinterpret_cast<const uint8_t*>(data.data()), scales.data(), out.data(), s.rows, s.cols});
      },
      nb::arg("data").noconvert(), nb::arg("scales").noconvert(), nb::arg("out").noconvert());
}

}  // namespace mn
