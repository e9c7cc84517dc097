#include "runtime/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/library.h"
#include "runtime/runtime.h"

namespace norch {
namespace {

using Handle = void*;
struct Functions {
    int (*version)(int* major, int* minor);
    int (*create)(Handle*, const char* source, const char* name, int headers, const char* const* texts,
                  const char* const* names);
    int (*destroy)(Handle*);
    int (*compile)(Handle, int options, const char* const*);
    int (*cubin_size)(Handle, size_t*);
    int (*cubin)(Handle, char*);
};

/// NVRTC opens a second library by its name alone, which is found where it has been opened already: it lies beside.
void open_builtins(const Functions& nvrtc) {
    int major = 0, minor = 0;
    nvrtc.version(&major, &minor);
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(nvrtc.version), &info) || !info.dli_fname) return;
    const std::string name = "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
    const std::string path = info.dli_fname;
    dlopen((path.substr(0, path.rfind('/') + 1) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// Null where it is not installed.
const Functions* library() {
    static const std::unique_ptr<const Functions> loaded = []() -> std::unique_ptr<const Functions> {
        try {
            const Library from("nvrtc", "libnvrtc.so.13", "compiled fused programs", "nvidia-cuda-nvrtc");
            Functions out;
            from.get(out.version, "nvrtcVersion");
            from.get(out.create, "nvrtcCreateProgram");
            from.get(out.destroy, "nvrtcDestroyProgram");
            from.get(out.compile, "nvrtcCompileProgram");
            from.get(out.cubin_size, "nvrtcGetCUBINSize");
            from.get(out.cubin, "nvrtcGetCUBIN");
            open_builtins(out);
            return std::make_unique<const Functions>(out);
        } catch (const std::runtime_error&) {
            return nullptr;
        }
    }();
    return loaded.get();
}

std::string compile(const Functions& nvrtc, const std::string& source, const std::string& architecture) {
    std::vector<const char*> texts, names;
    for (const HeaderText* header = runtime_headers; header->name; ++header) {
        texts.push_back(header->text);
        names.push_back(header->name);
    }
    Handle program = nullptr;
    if (nvrtc.create(&program, source.c_str(), "norch.cu", int(names.size()), texts.data(), names.data()) != 0) return "";
    const std::string target = "--gpu-architecture=" + architecture;
    const char* options[] = {target.c_str(), "-std=c++20", "-default-device"};
    std::string cubin;
    size_t size = 0;
    if (nvrtc.compile(program, int(std::size(options)), options) == 0 && nvrtc.cubin_size(program, &size) == 0) {
        cubin.resize(size);
        if (nvrtc.cubin(program, cubin.data()) != 0) cubin.clear();
    }
    nvrtc.destroy(&program);
    return cubin;
}

// --- On disk ----------------------------------------------------------------------------------------------------------

/// NORCH_CACHE_DIR, or the user's folder for caches; empty where there is none.
std::string cache_folder() {
    auto from = [](const char* variable) {
        const char* value = std::getenv(variable);
        return std::string(value ? value : "");
    };
    if (const auto own = from("NORCH_CACHE_DIR"); !own.empty()) return own;
    if (const auto users = from("XDG_CACHE_HOME"); users.starts_with('/')) return users + "/norch";
    if (const auto home = from("HOME"); home.starts_with('/')) return home + "/.cache/norch";
    return "";
}

/// FNV-1a (G. Fowler, L. Noll and K.-P. Vo), as a name: a file holds the whole key too.
std::string hash_of(const std::string& key) {
    uint64_t hash = 14695981039346656037u;
    for (unsigned char c : key) hash = (hash ^ c) * 1099511628211u;
    std::string out;
    for (int i = 60; i >= 0; i -= 4) out += "0123456789abcdef"[hash >> i & 15];
    return out;
}

// No streams of the standard library: their locales crash where it is linked in and Python's is another.
struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string read_cached(const std::string& path, const std::string& key) {
    const File file(std::fopen(path.c_str(), "rb"));
    std::string all;
    char part[4096];
    for (size_t count; file && (count = std::fread(part, 1, sizeof part, file.get())) > 0;) all.append(part, count);
    if (all.size() <= key.size() || all.compare(0, key.size(), key) != 0) return "";
    return all.substr(key.size());
}

void write_cached(const std::string& path, const std::string& key, const std::string& cubin) {
    const std::string part = path + "." + std::to_string(getpid());
    File file(std::fopen(part.c_str(), "wb"));  // where it fails it is compiled again next time
    if (!file) return;
    bool is_written = std::fwrite(key.data(), 1, key.size(), file.get()) == key.size() &&
                      std::fwrite(cubin.data(), 1, cubin.size(), file.get()) == cubin.size();
    is_written &= std::fclose(file.release()) == 0;
    if (!is_written || std::rename(part.c_str(), path.c_str()) != 0) std::remove(part.c_str());
}

/// Makes a folder and those that it lies in.
void make_folder(const std::string& path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
        mkdir(path.substr(0, at).c_str(), 0777);
    mkdir(path.c_str(), 0777);
}

const void* load(const std::string& cubin, const char* name) {
    const RelaxedCapture relaxed;
    cudaLibrary_t library = nullptr;
    cudaKernel_t kernel = nullptr;
    if (!cubin.empty() &&
        cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0) == cudaSuccess &&
        cudaLibraryGetKernel(&kernel, library, name) == cudaSuccess)
        return reinterpret_cast<const void*>(kernel);
    cudaGetLastError();
    return nullptr;
}

}  // namespace

const void* runtime_kernel(const std::string& source, const char* name, int device) {
    static std::unordered_map<std::string, const void*> known;
    static const char* const wanted = std::getenv("NORCH_CUDA_NVRTC");
    if (wanted && std::string(wanted) == "0") return nullptr;
    const Functions* nvrtc = library();
    if (!nvrtc) return nullptr;
    int major = 0, minor = 0;
    nvrtc->version(&major, &minor);
    const std::string architecture =
        "sm_" + std::to_string(properties(device).major) + std::to_string(properties(device).minor);
    std::string key = "norch-cuda nvrtc " + std::to_string(major) + "." + std::to_string(minor) + " " + architecture + "\n";
    for (const HeaderText* header = runtime_headers; header->name; ++header) key += hash_of(header->text);
    key += "\n" + source + '\0';
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    const std::string folder = cache_folder(), path = folder + "/" + hash_of(key) + ".cubin";
    const void* kernel = folder.empty() ? nullptr : load(read_cached(path, key), name);
    if (!kernel) {
        const std::string cubin = compile(*nvrtc, source, architecture);
        kernel = load(cubin, name);
        if (kernel && !folder.empty()) {
            make_folder(folder);
            write_cached(path, key, cubin);
        }
    }
    known[key] = kernel;
    return kernel;
}

}  // namespace norch
