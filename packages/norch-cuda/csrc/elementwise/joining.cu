#include "elementwise/joining.h"

#include <algorithm>
#include <numeric>

#include "common/joining.h"
#include "runtime/device.cuh"

namespace norch::elementwise {
namespace {

constexpr int PARTS = 16;  // in one launch

struct Launched {
    const char* from[PARTS];
    int64_t step[PARTS], start[PARTS];
    FastDivide width[PARTS];  // units in a row
    uint32_t units[PARTS];    // in all rows
    char* to;
    int64_t to_step;
};

template <class Unit>
__global__ void __launch_bounds__(THREADS) join(const __grid_constant__ Launched p) {
    const int part = int(blockIdx.y);
    const FastDivide width = p.width[part];
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < p.units[part]; i += gridDim.x * THREADS) {
        const uint32_t row = width.quotient(i), at = i - row * width.divisor;
        reinterpret_cast<Unit*>(p.to + row * p.to_step + p.start[part])[at] =
            reinterpret_cast<const Unit*>(p.from[part] + row * p.step[part])[at];
    }
}

class Joined final : public Kernel {
public:
    static KernelPtr make(const Request& request) {
        auto joined = joined_rows(request);
        if (!joined) return nullptr;
        auto made = std::make_unique<Joined>(std::move(*joined));
        const auto& [parts, rows, out_step] = made->joined_;
        const int64_t size = size_of(request.operands[0].dtype);
        for (const auto& [step, start, bytes] : parts) {
            if (rows * bytes / size >> 31 || (rows > 1 && step < bytes)) return nullptr;
            made->alignment_ = std::gcd(made->alignment_, rows > 1 ? std::gcd(std::gcd(step, bytes), start) : std::gcd(bytes, start));
        }
        if (rows > 1) made->alignment_ = std::gcd(made->alignment_, out_step);
        made->written = 1;
        return made;
    }
    explicit Joined(JoinedRows joined) : joined_(std::move(joined)) {}

    void run(char* const* data, const Scalar*) const override {
        const auto& parts = joined_.parts;
        for (size_t first = 0; first < parts.size(); first += PARTS) {
            const size_t count = std::min<size_t>(PARTS, parts.size() - first);
            uint64_t all = uint64_t(alignment_) | reinterpret_cast<uintptr_t>(data[0]);
            for (size_t i = first; i < first + count; ++i)
                if (parts[i].bytes) all |= reinterpret_cast<uintptr_t>(data[i + 1]);
            const int64_t unit = int64_t(all & -all);
            if (unit >= 16) launch<uint4>(data, first, count);
            else if (unit == 8) launch<uint64_t>(data, first, count);
            else if (unit == 4) launch<uint32_t>(data, first, count);
            else if (unit == 2) launch<uint16_t>(data, first, count);
            else launch<uint8_t>(data, first, count);
        }
    }

private:
    template <class Unit>
    void launch(char* const* data, size_t first, size_t count) const {
        Launched p = {};
        p.to = data[0], p.to_step = joined_.out_step;
        uint32_t most = 0;
        for (size_t i = 0; i < count; ++i) {
            const auto& part = joined_.parts[first + i];
            p.from[i] = data[first + i + 1];
            p.step[i] = part.step, p.start[i] = part.start;
            const int64_t width = part.bytes / int64_t(sizeof(Unit));
            p.width[i] = FastDivide(uint32_t(std::max<int64_t>(width, 1)));
            p.units[i] = uint32_t(width * joined_.rows);
            most = std::max(most, p.units[i]);
        }
        if (!most) return;
        const int64_t wanted = ceil_div(most, THREADS), enough = int64_t(multiprocessors()) * 32;
        launch_kernel("joining tensors", join<Unit>, dim3(unsigned(std::min(wanted, enough)), unsigned(count)), THREADS, p);
    }

    JoinedRows joined_;
    int64_t alignment_ = 16;
};

}  // namespace

KernelPtr join_parts(const Request& request) { return Joined::make(request); }

}  // namespace norch::elementwise
