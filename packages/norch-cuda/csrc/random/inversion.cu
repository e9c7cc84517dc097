// poisson_of_uniform: counts by inversion, a thread for each.
#include "common/layout.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::random {
namespace {

constexpr int MOST = 120;  // as in norch.ops.sampling

/// Rounded after each operation, as elsewhere, so that a seed's counts are the same on every device.
__global__ void __launch_bounds__(THREADS) count_by_inversion(const __grid_constant__ Layout<4> layout, char* out,
                                                              const char* uniform, const char* mass, const char* rate) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= layout.numel) return;
    int64_t offset[4];
    layout.offsets(i, offset);
    const auto at = [&](const char* data, int operand) { return *reinterpret_cast<const double*>(data + offset[operand]); };
    const double drawn = at(uniform, 1), expected = at(rate, 3);
    double of_count = at(mass, 2), below = of_count;
    int count = 0;
    while (count + 1 < MOST && drawn >= below) {
        ++count;
        of_count = __dmul_rn(of_count, expected / double(count));
        below = __dadd_rn(below, of_count);
    }
    *reinterpret_cast<double*>(out + offset[0]) = double(count);
}

KernelPtr poisson_of_uniform(const Request& request) {
    for (const Operand& o : request.operands)
        if (o.is_scalar || o.dtype != DType::f64 || o.shape != request.operands[0].shape) return nullptr;
    const std::vector<Piece<4>> pieces = cut<4>(collapse(request.operands));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        for (const Piece<4>& piece : pieces)
            launch_kernel("poisson_of_uniform", count_by_inversion, unsigned(ceil_div(piece.layout.numel, THREADS)), THREADS,
                          piece.layout, data[0] + piece.start[0], data[1] + piece.start[1], data[2] + piece.start[2],
                          data[3] + piece.start[3]);
    });
}

}  // namespace

void add_inversion(Registry& registry) { registry["poisson_of_uniform"] = poisson_of_uniform; }

}  // namespace norch::random
