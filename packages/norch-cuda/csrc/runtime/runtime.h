// The CUDA runtime's state as norch-cuda uses it: errors, devices, streams.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace norch {

struct Arena;  // allocator.h

/// A failed CUDA call.
struct CudaError : std::runtime_error {
    CudaError(cudaError_t code, const char* what);
    cudaError_t code;
};

/// Throws CudaError where a call failed. `what` says what was being done.
void check(cudaError_t code, const char* what);

/// Lets calls that allocate be made while a stream of this thread records a graph.
class RelaxedCapture {
public:
    RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Why there is no usable device, with what would change that; empty where there is one.
const std::string& unusable_reason();
/// How many devices there are; 0 where none is usable.
int device_count();

/// A stream and the memory that belongs to it. Streams live until the process ends: memory may outlive any user of one.
struct Stream {
    cudaStream_t handle = nullptr;
    int device = 0;
    Arena* arena = nullptr;      // where blocks for this stream come from
    bool is_capturing = false;
    bool is_programs = false;    // only ever recorded, for one program at a time
};

struct DeviceProperties {
    std::string name, uuid;
    int major = 0, minor = 0;
    int multiprocessors = 0;
    size_t total_memory = 0, l2_bytes = 0, shared_bytes = 0;  // shared_bytes: the most that one block may ask for
};
/// Asked of the driver once. Throws std::out_of_range where there is no such device.
const DeviceProperties& properties(int device);

/// The calling thread's current device, 0 at first.
int current_device();
void set_current_device(int device);
/// The calling thread's current stream on a device: at first the device's default stream.
Stream& current_stream(int device);
void set_current_stream(Stream& stream);
Stream& default_stream(int device);
/// A new stream that does not wait for the default stream.
Stream& make_stream(int device, int priority = 0);
/// The stream of a handle, which may be another library's.
Stream& stream_of(cudaStream_t handle, int device);

/// Whether a graph is recorded from a stream, or from one that it has waited for.
bool is_recorded(const Stream& stream);
/// Work given to `stream` from now on waits for what `other` was given so far.
void wait_for(Stream& stream, Stream& other);

/// Makes the device of a stream the one that CUDA calls of this thread mean.
void bind(int device);

/// The stream that the kernel now being launched belongs to, set before `Kernel::run` (under the GIL).
Stream& launch_stream();
void set_launch_stream(Stream& stream);
/// Its handle. Throws LaunchNotNoted while launches are noted and not made.
cudaStream_t stream_handle();
/// The multiprocessors of the device that the kernel now being launched runs on.
int multiprocessors();

/// Launches as they were made through `launch_kernel`, for a graph's nodes.
struct LaunchNotes {
    struct Note {
        const void* kernel;
        dim3 blocks, threads;
        size_t shared;
        std::vector<uint64_t> bytes;      // the arguments
        std::vector<void*> arguments;     // where each lies in `bytes`
    };
    std::vector<Note> notes;  // the first `count` of them
    size_t count = 0;
    bool makes_them = true;   // besides

    void add(const void* kernel, dim3 blocks, dim3 threads, size_t shared, const void* const* arguments,
             const size_t* sizes, int number);
};
/// A launch in another way than through `launch_kernel`, while launches are noted and not made.
struct LaunchNotNoted : std::exception {};
/// Where the launches being made are noted, or null. Under the GIL, as is all that launches.
extern LaunchNotes* launch_notes;

/// Where kernels of a device note the first index out of range, or the first weight that nothing can be drawn by, which
/// has `size` -1. `claim` is on the device, `record` in host memory that
/// the device can write, so that looking at it needs no copy.
struct IndexErrorRecord {
    int64_t index, size;
    int32_t op;
    int32_t is_set;
};
struct ErrorSink {
    int32_t* claim;
    IndexErrorRecord* record;
};
/// The sink of the device that the kernel now being launched runs on.
ErrorSink error_sink();
/// A number for the name of an op, for `report_index`.
int32_t op_number(const std::string& op);
/// Throws std::out_of_range where a kernel that has finished met an index out of range, std::runtime_error for a weight or
/// for what was failed, and forgets it.
void raise_reported(int device);
/// Work of a device was given up: its next synchronisation raises `why`. Any thread may call this.
void set_failure(int device, const std::string& why);

/// Waits for all work of a device, then raises what its kernels reported.
void synchronize_device(int device);
void synchronize_stream(Stream& stream);

}  // namespace norch
