"""PyTorch's import paths: one table says where weft has what PyTorch has there.

    import weft.nn.modules.linear           a module with the names of weft.nn
    from weft.cuda.amp import autocast      of weft.amp

A module of the table is made when it is asked for (importing.py). Its names are those of its source, looked up as they
are needed.
"""

from importlib import import_module
from types import ModuleType

_ROOT = __name__.partition(".")[0]

# (sources, paths that show them). A source is a module of weft's, or an object in one after a colon; of several the
# first that has a name gives it.
_TABLE = [
    ("amp", "amp amp.autocast_mode amp.grad_scaler"),
    ("amp:cuda_amp", "cuda.amp cuda.amp.autocast_mode cuda.amp.grad_scaler"),
    ("amp:cpu_amp", "cpu.amp cpu.amp.autocast_mode cpu.amp.grad_scaler"),
    ("autograd", "autograd.function autograd.grad_mode autograd.variable"),
    ("derivatives derivative_forms", "autograd.functional"),
    ("gradcheck", "autograd.gradcheck"),
    ("graph", "autograd.graph"),
    ("profiler profiled", "profiler profiler.profiler autograd.profiler"),
    ("profiled", "autograd.profiler_util"),
    ("autograd", "autograd.anomaly_mode"),
    ("resizing", "autograd._functions"),
    ("forward_ad", "autograd.forward_ad"),
    ("devices:cuda", "cuda cuda.memory cuda.random cuda.streams"),
    ("devices:xpu", "xpu"),
    ("devices:mps", "mps"),
    ("devices:cpu", "cpu"),
    ("devices:accelerator", "accelerator"),
    ("devices:backends", "backends"),
    ("devices:build", "__config__"),
    ("devices:cudnn", "backends.cudnn"),
    ("devices:cuda_backend", "backends.cuda"),
    ("devices:mps_backend", "backends.mps"),
    ("devices:other_backend", "backends.mkl backends.mkldnn backends.openmp backends.opt_einsum backends.cpu"),
    ("c_side", "_C"),
    ("distributed", "utils.data.distributed distributed.distributed_c10d"),
    ("distributed.zero", "distributed.optim distributed.optim.zero_redundancy_optimizer"),
    ("distributed.functional", "distributed.nn distributed.nn.functional"),
    (
        "distributed.comm_hooks",
        "distributed.algorithms distributed.algorithms.ddp_comm_hooks "
        "distributed.algorithms.ddp_comm_hooks.default_hooks",
    ),
    ("hub", "utils.model_zoo"),
    (".", "functional"),
    ("interchange", "utils.dlpack"),
    ("jit", "jit"),
    ("tracers:annotations", "jit.annotations"),
    ("tracers:jit_internal jit", "_jit_internal"),
    ("tracers:fx", "fx fx.experimental"),
    ("tracers:proxy_tensor", "fx.experimental.proxy_tensor"),
    ("tracers:fake_tensor", "_subclasses _subclasses.fake_tensor"),
    ("multiprocessing", "multiprocessing"),
    (
        "nn",
        "nn.modules nn.modules.activation nn.modules.adaptive nn.modules.channelshuffle "
        "nn.modules.distance nn.modules.dropout nn.modules.flatten nn.modules.fold "
        "nn.modules.linear nn.modules.normalization nn.modules.padding "
        "nn.modules.pixelshuffle nn.modules.rnn nn.modules.sparse nn.modules.upsampling",
    ),
    ("nn nn.state nn.module nn.every_module", "nn.modules.module"),
    ("nn nn.containers", "nn.modules.container"),
    ("nn nn.transformer", "nn.modules.transformer"),
    ("nn nn.convolution", "nn.modules.conv"),
    ("nn nn.group_normalization", "nn.modules.instancenorm"),
    ("nn nn.loss", "nn.modules.loss"),
    ("nn nn.normalization", "nn.modules.batchnorm"),
    ("nn nn.pooling_layers", "nn.modules.pooling"),
    ("nn.gradients", "nn.grad"),
    ("nn.parallel", "nn.parallel.data_parallel nn.parallel.distributed nn.parallel.scatter_gather"),
    ("nn.sequences", "nn.utils.rnn"),
    ("nn.tuples", "nn.modules.utils"),
    ("nn.utils", "nn.utils.clip_grad nn.utils.convert_parameters"),
    ("nn.parametrize", "nn.utils.parametrize"),
    ("func", "nn.utils.stateless"),
    ("nn.prune", "nn.utils.prune"),
    ("nn.flexible_attention", "nn.attention.flex_attention nn.attention.bias"),
    ("nn.fusing", "nn.utils.fusion nn.utils.memory_format"),
    ("nn.weight_norms", "nn.utils.weight_norm"),
    ("nn nn.fused_losses", "nn.modules.linear_cross_entropy"),
    ("nn nn.lazy", "nn.modules.lazy"),
    ("nn.hooks", "utils.hooks"),
    ("distributions.distribution", "distributions.exp_family distributions.utils"),
    (
        "distributions",
        "distributions.normal distributions.bernoulli distributions.categorical distributions.multivariate_normal "
        "distributions.independent distributions.transformed_distribution distributions.beta distributions.gamma "
        "distributions.dirichlet distributions.uniform distributions.one_hot_categorical "
        "distributions.relaxed_bernoulli distributions.relaxed_categorical distributions.mixture_same_family "
        "distributions.binomial distributions.cauchy distributions.chi2 distributions.exponential "
        "distributions.fishersnedecor distributions.generalized_pareto distributions.geometric distributions.gumbel "
        "distributions.half_cauchy distributions.half_normal distributions.inverse_gamma distributions.kumaraswamy "
        "distributions.laplace distributions.lkj_cholesky distributions.log_normal distributions.logistic_normal "
        "distributions.lowrank_multivariate_normal distributions.multinomial distributions.negative_binomial "
        "distributions.pareto distributions.poisson distributions.studentT distributions.von_mises "
        "distributions.weibull distributions.wishart",
    ),
    ("nn.parametrizations", "nn.utils.parametrizations"),
    ("optim", "optim.adamw"),
    ("serialization", "serialization"),
    ("signal_windows", "signal signal.windows"),
    ("storages", "storage"),
    ("random", "random"),
    ("compile_options:dynamo", "_dynamo _dynamo.eval_frame"),
    ("compile_options:dynamo_config", "_dynamo.config"),
    ("compile_options:inductor", "_inductor"),
    ("compile_options:inductor_config", "_inductor.config"),
    ("overrides", "overrides"),
    ("testing", "testing"),
    ("type_names", "types nn.common_types"),
    ("utils.pipes", "utils.data.datapipes utils.data.datapipes.datapipe utils.data.datapipes.iter"),
    ("utils.data", "utils.data.dataloader utils.data.dataset utils.data.sampler"),
    ("utils.checkpoint", "utils.checkpoint"),
    ("foreach", "utils._foreach_utils"),
    ("dispatching", "utils._python_dispatch utils._mode_utils"),
    ("underscored", "_utils _VF"),
    ("utils._pytree", "utils._pytree"),
    ("version", "version torch_version"),
    ("vmapping:internals", "_vmap_internals"),
]
# Modules of weft's, and names that such modules have, which are imported when they are asked for: `import weft`
# takes half the time without them.
LAZY = {
    *("amp", "autograd", "distributed", "distributions", "fft", "func", "futures", "hub", "linalg", "nn", "optim"),
    *("sparse", "special", "utils", "visualize"),
}
# Functions of lists of tensors (foreach.py) by the operands they have; those of one and two have a form in place.
FOREACH_OF_ONE = """
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round
    rsqrt sigmoid sign sin sinh sqrt tan tanh trunc
"""
FOREACH_OF_TWO = "add clamp_max clamp_min div maximum minimum mul pow sub"
FOREACH_APART = "clone copy_ max mm norm pow powsum zero_"
_FOREACH = {
    *(
        f"_foreach_{stem}{form}"
        for stem in f"{FOREACH_OF_ONE} {FOREACH_OF_TWO} addcdiv addcmul lerp".split()
        for form in ("", "_")
    ),
    *(f"_foreach_{stem}" for stem in FOREACH_APART.split()),
}
_LATER = [
    ("compiled", "compile compiler.compile _dynamo.OptimizedModule"),
    (
        "compile_options",
        "compiler.list_backends compiler.set_default_backend compiler.get_default_backend compiler.substitute_in_graph "
        "compiler.nested_compile_region compiler.config",
    ),
    (
        "compiler.dtypes",
        "uint16 uint32 uint64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu complex32 chalf "
        "qint8 quint8 qint32",
    ),
    ("exporting", "aot export"),
    ("foreach", " ".join(sorted(_FOREACH))),
    ("on_arrays", "for_numpy grad hessian hvp jacobian value_and_grad"),
    ("runtime.programs.exported", "load_exported"),
    ("ptx", "export_ptx"),
    ("runtime.programs.on_gpu", "load_ptx"),
    ("printing", "get_printoptions printoptions set_printoptions"),
    ("scaling", "GradScaler"),
    ("serialization", "load save"),
    (
        "sparse.creation",
        """
        sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor
        sparse_csr_tensor
        """,
    ),
    ("storages", "TypedStorage UntypedStorage"),
    ("tracers", "SymBool SymFloat SymInt"),
    (
        "underscored",
        """
        _standard_gamma _weight_norm _shape_as_tensor _dim_arange _softmax _log_softmax _softmax_backward_data
        _log_softmax_backward_data _unique _unique2
        """,
    ),
    ("vmapping", "vmap"),
    ("gradcheck", "autograd.GradcheckError autograd.gradcheck autograd.gradgradcheck"),
    ("profiler", "autograd._profiler_enabled autograd.kineto_available"),
    ("nn.data_parallel", "nn.parallel.DistributedDataParallel"),
    ("nn.functional", "celu_ rrelu_ selu_ threshold_"),
    (
        "overrides",
        """
        nn.functional.has_torch_function nn.functional.has_torch_function_unary
        nn.functional.has_torch_function_variadic nn.functional.handle_torch_function
        """,
    ),
    ("nn.tuples", "nn.functional._pair nn.functional._single nn.functional._triple"),
    ("tracers", "nn.functional.boolean_dispatch"),
    (
        "nn.inner_functions",
        """
        affine_grid_generator alpha_dropout_ convolution dropout_ embedding embedding_renorm_ feature_alpha_dropout_
        feature_dropout feature_dropout_ grid_sampler grid_sampler_2d grid_sampler_3d native_batch_norm
        native_channel_shuffle native_dropout native_group_norm native_layer_norm norm_except_dim
        nn.functional.grouped_mm nn.functional.native_channel_shuffle
        """,
    ),
    ("nn.recurrent_functions", "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell"),
    (
        "nn.fusing",
        """
        nn.utils.clip_grad_norm nn.utils.convert_conv2d_weight_memory_format
        nn.utils.convert_conv3d_weight_memory_format nn.utils.fuse_conv_bn_eval nn.utils.fuse_conv_bn_weights
        nn.utils.fuse_linear_bn_eval nn.utils.fuse_linear_bn_weights
        """,
    ),
    ("nn.older", "nn.Container nn.NLLLoss2d nn.factory_kwargs"),
    (
        "older",
        """
        OutOfMemoryError eig frobenius_norm from_file get_device get_device_module get_file_path is_distributed jagged
        legacy_contiguous_format lstsq nuclear_norm range segment_reduce set_anomaly_enabled solve symeig
        vander view_as_complex_copy view_as_real_copy
        """,
    ),
    ("amp", "autocast"),
    ("random", "thread_safe_generator"),
    ("runtime.code.cache", "clear_cache fill_cache"),
    ("runtime.code.threads", "get_num_threads set_num_threads"),
    ("runtime.eager.anomaly", "is_anomaly_check_nan_enabled is_anomaly_enabled"),
    ("rearranging", "func.rearrange"),
    ("func_forms", "func.debug_unwrap func.functionalize"),
    ("blocks", "autograd.enforce_grad_layout_policy"),
    (
        "utils.pipes",
        """
        utils.data.DFIterDataPipe utils.data.DataChunk utils.data.IterDataPipe utils.data.MapDataPipe
        utils.data.argument_validation utils.data.functional_datapipe utils.data.guaranteed_datapipes_determinism
        utils.data.non_deterministic utils.data.runtime_validation utils.data.runtime_validation_disabled
        """,
    ),
    (
        "optim.copied",
        " ".join(
            f"optim.optimizer.{name}"
            for name in str.split(
                """
                ParamsT _params_t _foreach_supported_types _params_doc _foreach_doc _fused_doc _capturable_doc
                _differentiable_doc _maximize_doc _use_grad_for_differentiable _disable_dynamo_if_unsupported
                _get_value _to_scalar _dispatch_sqrt _stack_if_compiling _get_scalar_dtype _view_as_real
                _default_to_fused_or_foreach _get_foreach_kernels_supported_devices _get_capturable_supported_devices
                """
            )
        ),
    ),
    ("optim.swapping", "optim.swap_in_optimizer_params_and_state"),
    ("nn.synchronized", "nn.SyncBatchNorm"),
    ("nn.bag_numbers", "embedding_bag"),
    (
        "nn.functional",
        """
        adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear
        binary_cross_entropy_with_logits celu channel_shuffle constant_pad_nd conv1d conv2d conv3d conv_tbc
        conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity ctc_loss dropout
        feature_alpha_dropout group_norm hardshrink hinge_embedding_loss instance_norm kl_div
        layer_norm margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pairwise_distance pdist
        pixel_shuffle pixel_unshuffle poisson_nll_loss prelu rms_norm rrelu selu threshold triplet_margin_loss
        """,
    ),
]
# Families of functions that few programs use: (names of functions, of functions that are methods too, of methods).
LATER_FAMILIES = {
    "added_products": ("", "addbmm addmm addmv addr baddbmm", "addbmm_ addmm_ addmv_ addr_ baddbmm_"),
    "amp": (
        "is_autocast_enabled is_autocast_cpu_enabled get_autocast_dtype get_autocast_cpu_dtype clear_autocast_cache",
        "",
        "",
    ),
    "copies": (
        """
        adjoint alias_copy as_strided_copy detach detach_copy diagonal_copy empty_permuted empty_strided expand_copy
        fill logspace permute_copy scalar_tensor select_copy slice_copy split_copy split_with_sizes_copy
        squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy
        """,
        "as_strided_scatter narrow_copy nonzero_static unsafe_chunk unsafe_split unsafe_split_with_sizes",
        "new_empty_strided",
    ),
    "differentiating": ("", "", "backward"),
    "layouts": (
        "",
        "",
        """
        ccol_indices coalesce col_indices crow_indices dense_dim indices row_indices sparse_dim sparse_mask to_sparse
        to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values
        """,
    ),
    "draws": ("binomial poisson", "", "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ random_"),
    "matrices": (
        "lobpcg lu_unpack matrix_rank pca_lowrank svd_lowrank",
        """
        cholesky cholesky_inverse cholesky_solve det geqrf inverse logdet lu lu_solve matrix_exp matrix_power norm
        orgqr ormqr pinverse qr slogdet svd triangular_solve
        """,
        "",
    ),
    "ordering": (
        "bucketize histogramdd isin searchsorted",
        """
        argsort bincount histc histogram kthvalue median mode msort multinomial nanmedian nanquantile quantile sort
        topk unique unique_consecutive
        """,
        "",
    ),
    "placing": (
        "",
        """
        argwhere diagonal_scatter index_copy index_fill index_put index_reduce masked_scatter masked_select put
        scatter_reduce select_scatter slice_scatter take take_along_dim
        """,
        "index_copy_ index_fill_ index_put_ index_reduce_ masked_scatter_ put_ scatter_reduce_",
    ),
    "products": ("cdist chain_matmul einsum pdist tensordot", "corrcoef cov cross dist ger kron vdot", ""),
    "reductions": ("", "aminmax nanmean nansum renorm", "renorm_"),
    "scans": (
        "cumulative_trapezoid gradient trapezoid trapz",
        "cummax cummin cumprod cumsum logcumsumexp",
        "cumprod_ cumsum_",
    ),
    "settings": (
        """
        set_float32_matmul_precision get_float32_matmul_precision use_deterministic_algorithms
        are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled set_deterministic_debug_mode
        get_deterministic_debug_mode set_warn_always is_warn_always_enabled set_flush_denormal set_num_interop_threads
        get_num_interop_threads set_default_device get_default_device _assert _assert_async
        """,
        "",
        "",
    ),
    "short_time": ("", "istft stft", ""),
    "spectral_windows": ("bartlett_window blackman_window hamming_window hann_window kaiser_window", "", ""),
}
FAMILY_OF_METHOD = {
    name: family for family, (_, both, methods) in LATER_FAMILIES.items() for name in f"{both} {methods}".split()
}
FAMILY_OF_FUNCTION = {
    name: family for family, (functions, both, _) in LATER_FAMILIES.items() for name in f"{functions} {both}".split()
}
# PyTorch has these in-place forms as functions, too.
FAMILY_OF_FUNCTION |= {name: FAMILY_OF_METHOD[name] for name in ("addmv_", "index_put_")}
LATER = {name: module for module, names in _LATER for name in names.split()} | FAMILY_OF_FUNCTION
# Modules of layers show what PyTorch's happen to import as well.
PATHS = {
    path: f"{source} nn.imported" if path.startswith("nn.modules.") else source
    for source, paths in _TABLE
    for path in paths.split()
}
PARENTS = {path.rpartition(".")[0] for path in PATHS}


class PathModule(ModuleType):
    """A path of PyTorch's. It shows the names of its source, and what has been assigned to it."""

    def __init__(self, name, sources):
        super().__init__(name, f"{name}: PyTorch's path to what is in {sources[0].__name__}.")
        self.__path__ = []
        self._sources = sources

    def __getattr__(self, name):
        inner = f"{self.__name__.partition('.')[2]}.{name}"
        if inner in PATHS:
            return import_module(f"{_ROOT}.{inner}")
        sources = vars(self)["_sources"]
        found = next((source for source in sources if name in vars(source)), sources[0])
        try:
            return getattr(found, name)
        except (AttributeError, ImportError) as error:
            path, explained = self.__name__.partition(".")[2], import_module(f"{_ROOT}.absent")
            if name in explained.names_in(path):
                raise type(error)(explained.sentence(path, name)) from None
            raise

    def __call__(self, *args, **kwargs):
        """autograd.gradcheck is a module of PyTorch's that has a function of its name, which it stands for too."""
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)

    @property
    def __all__(self):
        source = self._sources[0]
        return getattr(source, "__all__", [name for name in vars(source) if not name.startswith("_")])


def sources_of(path):
    """The modules that have what PyTorch has at a path of the table."""
    return [_source(place) for place in PATHS[path].split()]


def _source(place):
    module, _, name = place.partition(":")
    module = import_module(f"{_ROOT}.{module}".rstrip("."))
    return vars(module)[name] if name else module
