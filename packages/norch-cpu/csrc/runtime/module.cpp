// The extension module: what Python sees of the kernels.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "common/module.h"
#include "common/recurrence.h"
#include "matmul/mixed.h"
#include "matmul/tiles.h"
#include "runtime/families.h"
#include "runtime/flushing.h"
#include "runtime/machine.h"
#include "runtime/memory_owner.h"
#include "runtime/parallel.h"

namespace nb = nanobind;
using namespace norch;

namespace {

nb::dict stats() {
    MemoryStats s = memory_stats();
    nb::dict out;
    out["allocated_bytes"] = s.allocated;
    out["peak_allocated_bytes"] = s.peak_allocated;
    out["cached_bytes"] = s.cached;
    out["cache_hits"] = s.hits;
    out["cache_misses"] = s.misses;
    return out;
}

PyMethodDef methods[] = {
    {"from_host", from_host, METH_O, "A Buffer on writable contiguous host memory, or None."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

NB_MODULE(NORCH_MODULE, m) {
    add_kernels(m, {
#ifndef NORCH_STRESSED  // CMakeLists.txt says why
        reduction::add_scans, reduction::add_products, indexing::add_embedding, indexing::add_sparse_products, indexing::add_flip, indexing::add_sorting,
        indexing::add_searching, indexing::add_selection, indexing::add_triangle,
        matmul::add_quantized, nn::add_attention, nn::add_ctc, nn::add_normalization, nn::add_convolution,
        nn::add_pooling, nn::add_dropout, nn::add_folding, nn::add_resampling, nn::add_sampling, nn::add_cubic_sampling, nn::add_recurrence,
        nn::add_clipping,
        linalg::add_systems, linalg::add_triangles, linalg::add_factors, linalg::add_qr, linalg::add_spectral,
        indexing::add_padding, matmul::add_distances, spectral::add_fourier, random::add_inversion,
#endif
        elementwise::add_arithmetic, elementwise::add_copying, elementwise::add_complex,
        elementwise::add_special, elementwise::add_transcendental, elementwise::add_weighted,
        elementwise::add_activations, elementwise::add_fused, elementwise::add_fused_rows, elementwise::add_joining, reduction::add_reductions,
        reduction::add_variance, indexing::add_gather, indexing::add_scatter,
        matmul::add_matmul, nn::add_softmax, nn::add_losses, nn::add_optimizers, random::add_random});
    if (PyModule_AddFunctions(m.ptr(), methods) != 0) throw nb::python_error();
    m.def("memory_stats", stats);
    m.def("reset_peak_memory_stats", reset_peak_memory_stats);
    m.def("empty_cache", empty_cache);
    m.def("fma_peak", fma_peak, nb::arg("threads"), nb::call_guard<nb::gil_scoped_release>());
    m.def("copy_bandwidth", copy_bandwidth, nb::arg("nbytes"), nb::arg("threads"),
          nb::call_guard<nb::gil_scoped_release>());
    matmul::has_tiles();  // asks the system for them before there are threads
    m.def("has_tiles", matmul::has_tiles);
    m.def("tile_peak", tile_peak, nb::arg("threads"), nb::call_guard<nb::gil_scoped_release>());
    m.def("set_float32_parts", matmul::set_float32_parts, nb::arg("parts"));
    m.def("set_flush_denormal", [](bool flush) {
        set_floating_mode(flush ? floating_mode() | FLUSH : floating_mode() & ~FLUSH);
        return CAN_FLUSH;
    }, nb::arg("mode"));
    m.def("num_threads", num_threads);
    m.def("set_num_threads", set_num_threads, nb::arg("count"));
}
