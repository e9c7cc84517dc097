// log_gamma_draw, poisson_draw, race_keys: draws of a parameter that each element has. Of the first two a thread draws until
// a proposal is accepted. What is drawn and proposed is defined in norch.ops.rejection.
#include "common/layout.h"
#include "random/boxmuller.cuh"
#include "random/philox.cuh"
#include "runtime/families.h"

namespace norch::random {
namespace {
namespace distributions {

constexpr uint32_t ROUNDS = 1 << 14;  // as many as there are offsets for

/// What is drawn for one element: uniforms, or normals, of round after round. Number 0 is what is drawn first.
struct Source {
    const Philox& philox;
    uint64_t block;
    bool is_odd;

    __device__ Source(const Philox& p, uint64_t element) : philox(p), block(element / 2), is_odd(element % 2 != 0) {}
    __device__ double uniform(uint32_t number) const {
        const uint4 w = philox.any(block, number << 16);
        return is_odd ? uniform64(w.z, w.w) : uniform64(w.x, w.y);
    }
    __device__ double normal(uint32_t number) const {
        const uint4 w = philox.any(block, number << 16);
        const double2 pair = box_muller(uniform64(w.x, w.y), uniform64(w.z, w.w));
        return is_odd ? pair.y : pair.x;
    }
};

struct LogGamma {
    static constexpr const char* NAME = "log_gamma_draw";
    __device__ static double draw(double a, const Source& source) {
        if (!(a > 0.0 && a < INFINITY)) return NAN;
        const double d = (a < 1.0 ? a + 1.0 : a) - 1.0 / 3.0, step = 1.0 / sqrt(9.0 * d);
        for (uint32_t round = 0; round < ROUNDS; ++round) {
            const double x = source.normal(2 * round + 1), root = 1.0 + x * step, v = root * root * root;
            if (!(v > 0.0)) continue;
            const double bound = 0.5 * x * x + d - d * v + d * log(v);
            if (!(log(source.uniform(2 * round + 2)) < bound)) continue;
            const double found = log(fmax(d * v, 1e-300));
            return a < 1.0 ? found + log1p(-fmax(source.uniform(0), 1e-300)) / a : found;
        }
        return NAN;
    }
};

/// Rounded after each operation, as elsewhere, so that a seed's counts are the same on every device.
__device__ inline double count_by_inversion(double drawn, double rate) {
    constexpr int MOST = 120;
    double of_count = exp(-rate), below = of_count;
    int count = 0;
    while (count + 1 < MOST && drawn >= below) {
        ++count;
        of_count = __dmul_rn(of_count, rate / double(count));
        below = __dadd_rn(below, of_count);
    }
    return double(count);
}

struct Poisson {
    static constexpr const char* NAME = "poisson_draw";
    __device__ static double draw(double rate, const Source& source) {
        if (!(rate >= 0.0 && rate < INFINITY)) return NAN;
        if (rate < 10.0) return count_by_inversion(source.uniform(0), rate);
        const double b = 0.931 + 2.53 * sqrt(rate), a = 0.02483 * b - 0.059, log_rate = log(rate);
        const double log_alpha = log(1.1239 + 1.1328 / (b - 3.4));
        for (uint32_t round = 0; round < ROUNDS; ++round) {
            const double u = source.uniform(2 * round + 1) - 0.5, us = fmax(0.5 - fabs(u), 1e-12);
            const double k = floor((2.0 * a / us + b) * u + (rate + 0.43));
            if (k < 0.0) continue;
            const double mass = k * log_rate - rate - lgamma(k + 1.0);
            if (log1p(-source.uniform(2 * round + 2)) + log_alpha - log(a / (us * us) + b) <= mass) return k;
        }
        return NAN;
    }
};

/// weight / exponential draw.
struct RaceKey {
    static constexpr const char* NAME = "race_keys";
    __device__ static double draw(double weight, const Source& source) {
        const double u = source.uniform(0);  // 1 - u is exact
        return weight / (u < 1e-300 ? 1e-300 : -log(1.0 - u));
    }
};

/// op: the number of the op that what is no weight is reported for.
template <class Draw, class T>
__global__ void __launch_bounds__(THREADS) draw_for_elements(const __grid_constant__ Philox philox,
                                                             const __grid_constant__ Layout<2> layout, char* out,
                                                             const char* parameter, int64_t first, ErrorSink sink,
                                                             int32_t op) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= layout.numel) return;
    int64_t offset[2];
    layout.offsets(i, offset);
    const double given = double(upcast(*reinterpret_cast<const T*>(parameter + offset[1])));
    if constexpr (std::is_same_v<Draw, RaceKey>)
        if (!(given >= 0.0 && given < INFINITY)) report_index(sink, op, first + i, -1);
    *reinterpret_cast<double*>(out + offset[0]) = Draw::draw(given, Source(philox, uint64_t(first) + i));
}

template <class Draw, class T>
KernelPtr for_elements(const Request& request) {
    const Operand &out = request.operands[0], &parameter = request.operands[1];
    if (parameter.is_scalar || out.dtype != DType::f64 || out.shape != parameter.shape) return nullptr;
    const std::vector<Piece<2>> pieces = cut<2>(row_major_loops({&out, &parameter}));
    return make_kernel(0, [pieces, op = op_number("multinomial")](char* const* data, const Scalar* s) {
        const Philox philox(uint64_t(s[2].i), uint64_t(s[3].i));
        int64_t first = 0;
        for (const Piece<2>& piece : pieces) {
            launch_kernel(Draw::NAME, draw_for_elements<Draw, T>, unsigned(ceil_div(piece.layout.numel, THREADS)), THREADS,
                          philox, piece.layout, data[0] + piece.start[0], data[1] + piece.start[1], first, error_sink(),
                          op);
            first += piece.layout.numel;
        }
    });
}

template <class Draw>
KernelPtr of_doubles(const Request& request) {
    return request.operands[1].dtype == DType::f64 ? for_elements<Draw, double>(request) : nullptr;
}

KernelPtr race_keys(const Request& request) {
    const DType dtype = request.operands[1].dtype;
    if (!is_floating(dtype)) return nullptr;
    return visit_floating_device(dtype, [&]<class T>(Tag<T>) { return for_elements<RaceKey, T>(request); });
}

}  // namespace distributions
}  // namespace

void add_distributions(Registry& registry) {
    registry["log_gamma_draw"] = distributions::of_doubles<distributions::LogGamma>;
    registry["poisson_draw"] = distributions::of_doubles<distributions::Poisson>;
    registry["race_keys"] = distributions::race_keys;
}

}  // namespace norch::random
