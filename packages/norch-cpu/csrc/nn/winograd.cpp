#include "nn/winograd.h"

#include <algorithm>

#include "matmul/transpose.h"

namespace norch::nn::winograd {
namespace {

constexpr int64_t LEAST_CHANNELS = 24, LEAST_TILES = 96;  // fewer: moving pays more than multiplying

}  // namespace

void take_pixels(const float* image, const Image& about, int64_t y, int64_t x, const Pixels& pixels, float* out, float* scratch) {
    const auto &size = about.size, &stride = about.stride;
    const int64_t first = std::clamp<int64_t>(-y, 0, pixels.rows), end = std::clamp(size[2] - y, first, pixels.rows);
    const int64_t left = std::clamp<int64_t>(-x, 0, pixels.columns), right = std::clamp(size[3] - x, left, pixels.columns);
    const int64_t line = pixels.columns * pixels.pitch, width = right - left;
    for (int64_t r = 0; r < pixels.rows; ++r) {
        float* row = out + r * line;
        const bool is_inside = r >= first && r < end;
        std::fill(row, row + (is_inside ? left * pixels.pitch : line), 0.0f);
        if (is_inside) std::fill(row + right * pixels.pitch, row + line, 0.0f);
    }
    if (first == end || left == right) return;
    image += (y + first) * stride[2] + (x + left) * stride[3];
    float* to = out + first * line + left * pixels.pitch;
    if (stride[1] == 1) {
        for (int64_t r = first; r < end; ++r, to += line)
            for (int64_t i = 0; i < width; ++i)
                std::copy_n(image + (r - first) * stride[2] + i * stride[3], size[1], to + i * pixels.pitch);
    } else if (stride[2] == width && width < 2 * LANES) {  // rows are too short to be transposed one by one
        matmul::transpose(image, stride[1], size[1], (end - first) * width, scratch, pixels.pitch);
        for (int64_t r = first; r < end; ++r, to += line) std::copy_n(scratch + (r - first) * width * pixels.pitch, width * pixels.pitch, to);
    } else {
        for (int64_t r = first; r < end; ++r, to += line)
            matmul::transpose(image + (r - first) * stride[2], stride[1], size[1], width, to, pixels.pitch);
    }
}

void points_of_windows(const float* pixels, const Pixels& about, int64_t rows, int64_t across, float* points,
                       int64_t point_stride) {
    using Lanes = vector_t<float, LANES>;
    const int64_t pitch = about.pitch, line = about.columns * pitch;
    for (int64_t y = 0; y < rows; ++y) {
        for (int64_t x = 0; x < across; ++x, points += pitch) {
            const float* from = pixels + 2 * y * line + 2 * x * pitch;
            for (int64_t c = 0; c < pitch; c += LANES) {
                Lanes half[4][4];
                NORCH_UNROLL
                for (int i = 0; i < 4; ++i) {
                    Lanes d[4];
                    NORCH_UNROLL
                    for (int j = 0; j < 4; ++j) d[j] = load_vector<LANES>(from + i * line + j * pitch + c);
                    half[i][0] = d[0] - d[2], half[i][1] = d[1] + d[2], half[i][2] = d[2] - d[1], half[i][3] = d[1] - d[3];
                }
                NORCH_UNROLL
                for (int j = 0; j < 4; ++j) {
                    float* to = points + j * point_stride + c;
                    store_vector(to, half[0][j] - half[2][j]);
                    store_vector(to + 4 * point_stride, half[1][j] + half[2][j]);
                    store_vector(to + 8 * point_stride, half[2][j] - half[1][j]);
                    store_vector(to + 12 * point_stride, half[1][j] - half[3][j]);
                }
            }
        }
    }
}

bool is_fit(const Request& r, const Operand& weight, const Operand& windows, int64_t from, int64_t to) {
    for (const Operand& o : r.operands)
        if (o.dtype != DType::f32) return false;
    const auto is_one = [&](const char* name) {
        const auto& n = r.attrs.integers(name);
        return n[0] == 1 && n[1] == 1;
    };
    if (weight.shape[2] != 3 || weight.shape[3] != 3 || !is_one("stride") || !is_one("dilation")) return false;
    if (r.attrs.integer("groups") != 1 || !is_image_output(weight)) return false;
    const Tiles tiles{windows.shape[0], windows.shape[2], windows.shape[3]};
    const bool is_full = 4 * tiles.count() * 4 <= 5 * tiles.batch * tiles.height * tiles.width;
    return is_full && tiles.count() >= LEAST_TILES && from >= LEAST_CHANNELS && to >= LEAST_CHANNELS &&
           in_panels(to) * PANEL * 4 <= 5 * to;
}

}  // namespace norch::nn::winograd
