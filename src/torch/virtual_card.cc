// virtual_card.cc -- a card that is not there, so that a training step can be captured for it.
//
// Makes PyTorch believe that one CUDA device exists, with the CPU-only build as with the CUDA build: fake CUDA tensors then go through
// forward, backward and optimizer.  No kernel ever runs; only what PyTorch decides in C++ from "is there a device, which cuDNN, which
// architecture" is answered, above all which attention kernel it would call.
//
// Compiled by virtual_card.py against the installed torch, and loaded during `import torch`: after torch's libraries, whose symbols must
// not bind to ours, and before torch._C runs, since PyTorch asks for its CUDA hooks once and keeps the answer.  tn_virtual_card() comes
// after the import, since a CUDA build installs its own choices while it loads.
// Overriding functions are not marked so: their set changes with the version, and one that is not known yet does no harm.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/RNN.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>

namespace {

// What is answered depends on three things: the card's compute capability, the release of PyTorch (2.11 is 211), and its cuDNN.
struct Answers {
  int major = 9, minor = 0;
  int release = TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR;

  // The cuDNN that the release is built with, as cudnnGetVersion() says it.
  long cudnn() const { return release >= 214 ? 92400 : release >= 212 ? 92000 : release >= 211 ? 91900 : 91002; }
  bool is_sm(int low, int high) const { return low <= major * 10 + minor && major * 10 + minor <= high; }
  bool is_large() const { return is_sm(90, 90) || major == 10; }  // Hopper and Blackwell of data centres
};
Answers answers;

const c10::Device card{c10::DeviceType::CUDA, 0};
const c10::Stream stream(c10::Stream::DEFAULT, card);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return card; }
  c10::Device getDevice() const override { return card; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept { return stream; }
  c10::Stream getDefaultStream(c10::Device) const override { return stream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
const Guard guard;

// ---- attention -----------------------------------------------------------------------------------------------------------------
//
// PyTorch tries the kernels in an order and takes the first whose conditions hold (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
// The conditions, for dense tensors, by release; those of 2.11 agree with 7,200 answers of an H200.

struct Attention {
  at::Tensor q, k, v;
  std::optional<at::Tensor> mask;
  double dropout;
  bool causal, grouped;

  bool half() const { return q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16; }
  bool same_dtype() const { return q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(); }
  bool differentiable() const { return at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad()); }
  int64_t heads_of(const at::Tensor& t) const { return t.size(1); }
  bool dense_4d() const {
    return q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && !q.is_nested() && !k.is_nested() && !v.is_nested() && q.size(2) > 0 &&
        k.size(2) > 0 && q.size(0) == k.size(0) && q.size(0) == v.size(0);
  }
  // A kernel that takes grouped heads takes any number of key heads that divides the query heads.
  bool heads_fit(bool takes_grouped, bool keys_and_values_alike) const {
    const int64_t hq = heads_of(q), hk = heads_of(k), hv = heads_of(v);
    if (answers.release >= 214 && hk == 1 && hv == 1) return true;
    if (grouped && takes_grouped) return (!keys_and_values_alike || hk == hv) && hq % hk == 0 && hq % hv == 0;
    return hq == hk && hq == hv;
  }
  bool last_stride_is_one(bool or_size_one) const {
    const bool one = q.stride(-1) == 1 && k.stride(-1) == 1 && v.stride(-1) == 1;
    return (one || (or_size_one && q.size(-1) == 1)) && (!mask || mask->stride(-1) == 1);
  }
};

// Sizes that equal the attention's or are broadcast to it.
bool mask_fits(const Attention& a) {
  if (!a.mask) return true;
  const at::Tensor& m = *a.mask;
  if (m.requires_grad() || (m.dim() != 2 && m.dim() != 4)) return false;
  const auto fits = [&](int64_t at, int64_t size) { return m.size(at) == size || m.size(at) == 1; };
  if (!fits(-2, a.q.size(2)) || !fits(-1, a.k.size(2))) return false;
  return m.dim() == 2 || (fits(0, a.q.size(0)) && fits(1, a.q.size(1)));
}

bool can_cudnn(const Attention& a) {
  const at::Context& context = at::globalContext();
  if (!context.userEnabledCuDNNSDP() || !a.dense_4d() || !a.half() || !a.same_dtype() || !answers.is_sm(80, 121) || !mask_fits(a)) return false;
  if (context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly()) return false;
  if (a.dropout > 0 && answers.cudnn() > 91100 && answers.cudnn() < 91400) return false;
  if (answers.release >= 212 && a.dropout * 16 != std::floor(a.dropout * 16)) return false;  // its dropout counts in sixteenths
  if (!a.heads_fit(true, false) || !a.last_stride_is_one(true)) return false;
  const int64_t dq = a.q.size(3), dv = a.v.size(3), limit = answers.is_large() ? 256 : 128, queries = a.q.size(2);
  if (dq > limit || dv > limit || dq % 8 || dv % 8) return false;
  if (answers.release >= 214) {
    if (a.q.size(0) > 65535 || a.q.size(1) > 65535) return false;
    if (queries == 1 && (answers.major == 10 || answers.major == 11)) return false;
    const bool has_backward = (dq <= 128 && dv <= 128) || (dq == 192 && dv == 128) || (dq == 256 && dv == 256);
    if (answers.is_large() && a.differentiable() && !has_backward) return false;
  }
  return a.k.size(2) != 1 && !(queries == 1 && a.dropout != 0);
}

bool can_flash(const Attention& a) {
  if (!at::globalContext().userEnabledFlashSDP() || !a.dense_4d() || a.mask || !answers.is_sm(80, 121) || !a.half() || !a.same_dtype()) return false;
  const int64_t d = a.q.size(3);
  if (d != a.k.size(3) || d != a.v.size(3) || d > 256) return false;
  const bool small = answers.is_sm(86, 89) || answers.is_sm(120, 121);  // too little shared memory for the backward pass of wide heads
  if (small && a.differentiable() && ((d > 192 && d <= 224) || (d > 224 && a.dropout > 0))) return false;
  if (a.causal && a.q.size(2) != a.k.size(2)) return false;
  return a.heads_fit(true, true) && a.last_stride_is_one(true);
}

bool can_efficient(const Attention& a) {
  if (!at::globalContext().userEnabledMemEfficientSDP() || !a.dense_4d() || !answers.is_sm(50, 121) || !a.same_dtype()) return false;
  const at::ScalarType dtype = a.q.scalar_type();
  if (!(dtype == at::kFloat || dtype == at::kHalf || (dtype == at::kBFloat16 && answers.major >= 8))) return false;
  const bool tensor_cores = answers.major >= 8 || (answers.major == 7 && a.half());
  const int64_t alignment = std::max<int64_t>(answers.major >= 8 ? 4 : 1, tensor_cores ? (a.half() ? 8 : 4) : 1);
  const int64_t dq = a.q.size(3), dv = a.v.size(3);
  if (dq != a.k.size(3) || dq == 0 || dv == 0 || dq % alignment || dv % alignment) return false;
  if (answers.release >= 214 && answers.major >= 8)
    for (const at::Tensor* t : {&a.q, &a.k, &a.v})
      if (t->storage_offset() % alignment) return false;
  return a.heads_fit(answers.release >= 214, true) && a.last_stride_is_one(false);
}

// Its last argument, whether heads are grouped, came with PyTorch 2.5.
template <typename... Grouped>
int64_t attention_choice(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double dropout,
                         bool causal, std::optional<double>, Grouped... grouped) {
  const Attention a{q, k, v, mask && mask->defined() ? mask : std::nullopt, dropout, causal, (grouped || ... || false)};
  const at::Context& context = at::globalContext();
  const bool cudnn_first = answers.release >= 210 && answers.cudnn() > 91500 && (answers.major == 9 || answers.major == 10);
  if (cudnn_first && can_cudnn(a)) return static_cast<int64_t>(sdp::SDPBackend::cudnn_attention);
  if (can_flash(a)) return static_cast<int64_t>(sdp::SDPBackend::flash_attention);
  if (can_efficient(a)) return static_cast<int64_t>(sdp::SDPBackend::efficient_attention);
  if (context.userEnabledMathSDP()) return static_cast<int64_t>(sdp::SDPBackend::math);
  if (can_cudnn(a)) return static_cast<int64_t>(sdp::SDPBackend::cudnn_attention);
  return static_cast<int64_t>(sdp::SDPBackend::error);
}

// ---- recurrent nets ------------------------------------------------------------------------------------------------------------
// One op, as on a real card; without these PyTorch has no kernel to choose and stops.

enum { cudnn_rnn_relu = 0, cudnn_rnn_tanh = 1, cudnn_lstm = 2, cudnn_gru = 3 };

auto cudnn_rnn(int64_t mode, const at::Tensor& input, const at::Tensor& hx, const std::optional<at::Tensor>& cx, at::TensorList params,
               bool has_biases, int64_t num_layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const int64_t hidden = hx.size(2), projected = 0;  // proj_size, which adds one weight per layer, is not handled here
  return at::_cudnn_rnn(input, params, has_biases ? 4 : 2, {}, hx, cx, mode, hidden, projected, num_layers, batch_first, dropout, train,
                        bidirectional, {}, {});
}

void lstm(at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& input, at::TensorList hx, at::TensorList params,
          bool has_biases, int64_t num_layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  std::tie(output, hy, cy, std::ignore, std::ignore) =
      cudnn_rnn(cudnn_lstm, input, hx[0], hx[1], params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
}

template <int64_t mode>
void rnn(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx, at::TensorList params, bool has_biases,
         int64_t num_layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  std::tie(output, hy, std::ignore, std::ignore, std::ignore) =
      cudnn_rnn(mode, input, hx, std::nullopt, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
}

}  // namespace

namespace at {

struct CardHooks : CUDAHooksInterface {
  explicit CardHooks(CUDAHooksArgs) {}
  void init() const {}
  void initCUDA() const {}
  bool hasCUDA() const { return true; }
  bool hasCuDNN() const { return true; }
  bool hasCuBLASLt() const { return true; }
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool hasPrimaryContext(DeviceIndex) const { return true; }
  DeviceIndex current_device() const { return 0; }
  DeviceIndex deviceCount() const { return 1; }
  DeviceIndex getCurrentDevice() const { return 0; }
  DeviceIndex exchangeDevice(DeviceIndex) const { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const { return 0; }
  bool compiledWithCuDNN() const { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const { return true; }
  bool supportsBFloat16RNNWithCuDNN() const { return true; }
  long versionCuDNN() const { return answers.cudnn(); }
  long versionRuntimeCuDNN() const { return answers.cudnn(); }
  long versionCUDART() const { return 13000; }
  double batchnormMinEpsilonCuDNN() const { return 0.0; }
  int getNumGPUs() const { return 1; }
};

static RegistererCUDAHooksRegistry register_card("CUDAHooks", c10::REGISTRY_PREFERRED, CUDAHooksRegistry(),
                                                 RegistererCUDAHooksRegistry::DefaultCreator<CardHooks>, "");

}  // namespace at

// Arms the card, of a compute capability; release 0 = this PyTorch's.  Call after `import torch`.
extern "C" void tn_virtual_card(int major, int minor, int release) {
  answers = Answers{};
  answers.major = major;
  answers.minor = minor;
  if (release) answers.release = release;
  c10::impl::DeviceGuardImplRegistrar(c10::DeviceType::CUDA, &guard);
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(attention_choice);
  at::native::lstm_cudnn_stub.set_cuda_dispatch_ptr(&lstm);
  at::native::gru_cudnn_stub.set_cuda_dispatch_ptr(&rnn<cudnn_gru>);
  at::native::rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&rnn<cudnn_rnn_tanh>);
  at::native::rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&rnn<cudnn_rnn_relu>);
}
