#include "runtime/runtime.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>

#include "runtime/allocator.h"

namespace norch {

namespace {

const pid_t LOADED_IN = getpid();

/// What to do about an error; empty where that is not known.
const char* advice_on(cudaError_t code) {
    if (code != cudaErrorInitializationError || getpid() == LOADED_IN) return "";
    return "; this process was forked from one that uses CUDA, which cannot be: start it by multiprocessing's \"spawn\"";
}

}  // namespace

CudaError::CudaError(cudaError_t code, const char* what)
    : std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")" +
                         advice_on(code)),
      code(code) {}

void check(cudaError_t code, const char* what) {
    if (code == cudaSuccess) return;
    cudaGetLastError();  // what has been reported is not to fail the next call too
    throw CudaError(code, what);
}

namespace {

constexpr int NEEDED = CUDART_VERSION / 1000 * 1000;

std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Asked of the driver library itself: the runtime says "insufficient driver" for a missing one too.
std::string find_reason() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return "there is no NVIDIA driver (libcuda.so.1 cannot be loaded); install driver 580 or newer on a machine "
               "with an NVIDIA GPU";
    using Init = int (*)(unsigned);
    using Version = int (*)(int*);
    auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
    auto version_of = reinterpret_cast<Version>(dlsym(driver, "cuDriverGetVersion"));
    int version = 0;
    if (!init || !version_of || version_of(&version) != 0)
        return "the NVIDIA driver's libcuda.so.1 is no CUDA driver; reinstall the driver (580 or newer)";
    if (version < NEEDED)
        return "the NVIDIA driver is too old: it supports CUDA " + version_text(version) + ", norch-cuda needs " +
               version_text(NEEDED) + "; install driver 580 or newer";
    int code = init(0);
    if (code == 100)  // CUDA_ERROR_NO_DEVICE
        return "the NVIDIA driver finds no GPU; check `nvidia-smi` and CUDA_VISIBLE_DEVICES";
    if (code != 0)
        return "the NVIDIA driver fails to start (cuInit returns " + std::to_string(code) + "); check `nvidia-smi`";
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) return std::string("the CUDA runtime fails to start: ") + cudaGetErrorString(error);
    if (count == 0) return "the NVIDIA driver finds no GPU; check `nvidia-smi` and CUDA_VISIBLE_DEVICES";
    for (int i = 0; i < count; ++i) {
        int major = 0;
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i);
        if (major < 8)
            return "GPU " + std::to_string(i) + " has compute capability " + std::to_string(major) +
                   ".x, norch-cuda needs 8.0 or higher; hide it with CUDA_VISIBLE_DEVICES";
    }
    return "";
}

int count_devices() {
    int count = 0;
    if (!unusable_reason().empty() || cudaGetDeviceCount(&count) != cudaSuccess) return 0;
    return count;
}

struct Device {
    DeviceProperties properties;
    Stream default_stream;
    ErrorSink sink = {};
    std::atomic<const std::string*> failure = nullptr;
};

Device& device_state(int device) {
    static auto states = std::vector<std::unique_ptr<Device>>(size_t(device_count()));
    if (device < 0 || size_t(device) >= states.size())
        throw std::out_of_range("there is no CUDA device " + std::to_string(device));
    auto& state = states[size_t(device)];
    if (!state) {
        auto created = std::make_unique<Device>();
        auto attribute = [&](cudaDeviceAttr which) {
            int value = 0;
            check(cudaDeviceGetAttribute(&value, which, device), "asking for a device's properties");
            return value;
        };
        DeviceProperties& p = created->properties;
        cudaDeviceProp all;
        check(cudaGetDeviceProperties(&all, device), "asking for a device's properties");
        p.name = all.name;
        for (int i = 0; i < 16; ++i) {
            const unsigned byte = static_cast<unsigned char>(all.uuid.bytes[i]);
            if (i == 4 || i == 6 || i == 8 || i == 10) p.uuid += '-';
            p.uuid += "0123456789abcdef"[byte >> 4];
            p.uuid += "0123456789abcdef"[byte & 15];
        }
        p.major = attribute(cudaDevAttrComputeCapabilityMajor);
        p.minor = attribute(cudaDevAttrComputeCapabilityMinor);
        p.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
        p.l2_bytes = size_t(attribute(cudaDevAttrL2CacheSize));
        p.shared_bytes = size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
        p.total_memory = all.totalGlobalMem;
        created->default_stream.device = device;
        created->default_stream.arena = make_arena(device, &created->default_stream);
        state = std::move(created);
    }
    return *state;
}

struct ThreadState {
    int device = 0;
    std::vector<Stream*> streams;
};
ThreadState& thread_state() {
    thread_local ThreadState state;
    return state;
}

Stream* launching = nullptr;

std::vector<std::string>& op_names() {
    static std::vector<std::string> names;
    return names;
}

}  // namespace

const std::string& unusable_reason() {
    static const std::string reason = find_reason();
    return reason;
}

int device_count() {
    static const int count = count_devices();
    return count;
}

const DeviceProperties& properties(int device) { return device_state(device).properties; }

int current_device() { return thread_state().device; }

void set_current_device(int device) {
    device_state(device);
    thread_state().device = device;
}

Stream& default_stream(int device) { return device_state(device).default_stream; }

Stream& current_stream(int device) {
    ThreadState& thread = thread_state();
    if (size_t(device) < thread.streams.size() && thread.streams[size_t(device)]) return *thread.streams[size_t(device)];
    return default_stream(device);
}

void set_current_stream(Stream& stream) {
    ThreadState& thread = thread_state();
    if (thread.streams.size() <= size_t(stream.device)) thread.streams.resize(size_t(stream.device) + 1);
    thread.streams[size_t(stream.device)] = &stream;
}

namespace {

std::deque<Stream>& streams() {
    static std::deque<Stream> all;  // a deque: streams never move
    return all;
}

Stream& add_stream(cudaStream_t handle, int device) {
    Stream& stream = streams().emplace_back();
    stream.handle = handle;
    stream.device = device;
    stream.arena = make_arena(device, &stream);
    return stream;
}

}  // namespace

Stream& make_stream(int device, int priority) {
    device_state(device);
    bind(device);
    cudaStream_t handle;
    check(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, priority), "creating a stream");
    return add_stream(handle, device);
}

Stream& stream_of(cudaStream_t handle, int device) {
    if (!handle) return default_stream(device);
    device_state(device);
    for (Stream& stream : streams())
        if (stream.handle == handle && stream.device == device) return stream;
    return add_stream(handle, device);
}

bool is_recorded(const Stream& stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return stream.handle && cudaStreamIsCapturing(stream.handle, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

void bind(int device) {
    static const bool is_alone = device_count() == 1;
    if (!is_alone) check(cudaSetDevice(device), "choosing a device");
}

void wait_for(Stream& stream, Stream& other) {
    cudaEvent_t event;
    bind(other.device);
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
    cudaError_t error = cudaEventRecord(event, other.handle);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream.handle, event, 0);
    cudaEventDestroy(event);
    check(error, "ordering two streams");
}

Stream& launch_stream() { return *launching; }

LaunchNotes* launch_notes = nullptr;

cudaStream_t stream_handle() {
    if (launch_notes && !launch_notes->makes_them) throw LaunchNotNoted();
    return launching->handle;
}

void LaunchNotes::add(const void* kernel, dim3 blocks, dim3 threads, size_t shared, const void* const* arguments,
                      const size_t* sizes, int number) {
    if (count == notes.size()) notes.emplace_back();
    Note& note = notes[count++];
    note.kernel = kernel;
    note.blocks = blocks;
    note.threads = threads;
    note.shared = shared;
    size_t words = 0;
    auto words_of = [&](int i) { return (sizes[i] + 15) / 16 * 2; };
    for (int i = 0; i < number; ++i) words += words_of(i);
    note.bytes.resize(words);
    note.arguments.resize(size_t(number));
    uint64_t* to = note.bytes.data();
    for (int i = 0; i < number; ++i) {
        std::memcpy(to, arguments[i], sizes[i]);
        note.arguments[size_t(i)] = to;
        to += words_of(i);
    }
}

void set_launch_stream(Stream& stream) {
    launching = &stream;
    bind(stream.device);
}

int multiprocessors() { return properties(launching ? launching->device : current_device()).multiprocessors; }

ErrorSink error_sink() {
    Device& device = device_state(launching->device);
    if (!device.sink.claim) {
        // One page that host and device share, and the word that decides who may write it.
        const RelaxedCapture relaxed;
        void* record = nullptr;
        void* claim = nullptr;
        cudaError_t error = cudaHostAlloc(&record, sizeof(IndexErrorRecord), cudaHostAllocMapped | cudaHostAllocPortable);
        if (error == cudaSuccess) error = cudaMalloc(&claim, sizeof(int32_t));
        if (error == cudaSuccess) error = cudaMemset(claim, 0, sizeof(int32_t));
        check(error, "making a device's error record");
        device.sink.record = static_cast<IndexErrorRecord*>(record);
        *device.sink.record = {};
        device.sink.claim = static_cast<int32_t*>(claim);
    }
    return device.sink;
}

int32_t op_number(const std::string& op) {
    auto& names = op_names();
    for (size_t i = 0; i < names.size(); ++i)
        if (names[i] == op) return int32_t(i);
    names.push_back(op);
    return int32_t(names.size() - 1);
}

void set_failure(int device, const std::string& why) {
    delete device_state(device).failure.exchange(new std::string(why));
}

void raise_reported(int device) {
    if (std::unique_ptr<const std::string> failure{device_state(device).failure.exchange(nullptr)})
        throw std::runtime_error(*failure);
    ErrorSink sink = device_state(device).sink;
    if (!sink.record) return;
    volatile IndexErrorRecord* record = sink.record;
    if (!record->is_set) return;
    int64_t index = record->index, size = record->size;
    std::string op = op_names()[size_t(record->op)];
    record->is_set = 0;
    bind(device);
    check(cudaMemset(sink.claim, 0, sizeof(int32_t)), "clearing a device's error record");
    const std::string where =
        " (on cuda:" + std::to_string(device) + ", found at the first synchronisation after it)";
    if (size < 0)
        throw std::runtime_error(op + "(): the weights must be finite and not negative; number " +
                                 std::to_string(index) + " of all is not" + where);
    throw std::out_of_range(op + "(): index " + std::to_string(index) + " is out of bounds for a dim of size " +
                            std::to_string(size) + where);
}

void synchronize_device(int device) {
    device_state(device);
    bind(device);
    check(cudaDeviceSynchronize(), "waiting for a device");
    raise_reported(device);
}

void synchronize_stream(Stream& stream) {
    bind(stream.device);
    check(cudaStreamSynchronize(stream.handle), "waiting for a stream");
    raise_reported(stream.device);
}

}  // namespace norch
