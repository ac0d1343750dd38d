#include "kernels/peaks.hpp"

#include <nanobind/stl/string.h>

#include "bindings/bindings.hpp"

namespace mn {

void bind_peaks(nb::module_& m) {
  m.def(
      "peak_compute",
      [](const std::string& kind, int64_t tasks, int64_t steps) {
        require(kind == "fma" || kind == "int8" || kind == "int4",
                "kind: expected fma, int8 or int4, got " + kind);
        require(tasks >= 1 && steps >= 1, "tasks, steps: expected at least 1");
        nb::gil_scoped_release release;
        int64_t ops = 0;
        peak({kind == "fma"    ? Peak::fma
              : kind == "int8" ? Peak::int8
                               : Peak::int4,
              tasks, steps, nullptr, 0, &ops});
        return ops;
      },
      nb::arg("kind"), nb::arg("tasks"), nb::arg("steps"),
      "Run a register-only loop at the limit of fp32 multiply-adds (fma), of 8-bit products widened to 32 "
      "bits\n"
      "(int8) or of nibbles times bytes summed in 16 bits (int4). Returns the operations done; the caller "
      "times it.");
  m.def(
      "peak_read",
      [](In<uint8_t> data) {
        require(data.ndim() == 1 && data.shape(0) % 64 == 0,
                "data: expected a multiple of 64 bytes, got " + shape_text(data));
        nb::gil_scoped_release release;
        int64_t bytes = 0;
        peak({Peak::read, 0, 0, data.data(), static_cast<int64_t>(data.shape(0)), &bytes});
        return bytes;
      },
      nb::arg("data").noconvert(),
      "Read data [bytes] once on all threads. Returns the bytes read; the caller times it.");
}

}  // namespace mn
