"""Which ops a program in a file may call: those that models are made of, and that check what they are given.

Some of torch's ops trust their arguments: ``max_pool2d_with_indices_backward`` writes wherever its indices say, and
``native_group_norm`` reads as many values as it is told. A file must not be able to name them, so ops are listed by name. Of
each, every overload is meant: with numbers or tensors, into a new tensor, in place or into a given one. What torch itself
calls pointwise (a value for each value of the same shape) is among them without being listed; but versions of torch differ
in what they call so, and what models are made of is listed all the same. What starts with an underscore is torch's own and
is listed one by one.
"""

import torch

_GROUPS = {
    "shapes": """
        adjoint alias atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors broadcast_to cartesian_prod cat chalf
        channel_shuffle chunk clone col2im column_stack complex concat concatenate conj constant_pad_nd contiguous copy
        detach diag diag_embed diagflat diagonal diagonal_scatter dsplit dstack expand expand_as flatten flip fliplr flipud
        hsplit hstack im2col imag lift lift_fresh lift_fresh_copy mH mT matrix_H meshgrid moveaxis movedim narrow
        native_channel_shuffle numpy_T pad permute pixel_shuffle pixel_unshuffle polar ravel real reflection_pad1d
        reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d
        reshape reshape_as resolve_conj resolve_neg roll rot90 row_stack select select_scatter slice slice_inverse
        slice_scatter split split_with_sizes squeeze stack sum_to_size swapaxes swapdims t tensor_split tile to transpose
        tril triu type_as unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze view view_as
        view_as_complex view_as_real vsplit vstack _cast_Byte _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int
        _cast_Long _cast_Short _conj _reshape_copy _shape_as_tensor _stack _to_copy _unsafe_view
    """,
    "copies where others give views": """
        alias_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy slice_copy split_copy
        split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_as_complex_copy
        view_as_real_copy view_copy
    """,
    "new tensors": """
        arange bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye fill fill_diagonal_ full
        full_like hamming_window hann_window kaiser_window linspace logspace new_empty new_empty_strided new_full new_ones
        new_zeros one_hot ones ones_like range scalar_tensor tril_indices triu_indices vander zero zeros zeros_like
    """,
    "chance": """
        alpha_dropout bernoulli cauchy dropout exponential feature_alpha_dropout feature_dropout geometric log_normal
        multinomial native_dropout normal normal_functional poisson rand rand_like randint randint_like randn randn_like
        random randperm rrelu uniform
    """,
    "layers": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
        adaptive_max_pool3d affine_grid_generator avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear conv1d conv2d conv3d
        conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution cosine_similarity embedding
        fake_quantize_per_channel_affine fake_quantize_per_tensor_affine glu grid_sampler grid_sampler_2d grid_sampler_3d
        group_norm gru gru_cell hardswish instance_norm layer_norm linear log_sigmoid log_softmax lstm lstm_cell max_pool1d
        max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool2d
        max_unpool3d norm_except_dim prelu relu6 rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
        scaled_dot_product_attention softmax upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
        upsample_nearest2d upsample_nearest3d upsample_trilinear3d _adaptive_avg_pool2d _adaptive_avg_pool3d _log_softmax
        _prelu_kernel _safe_softmax _softmax _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm
    """,
    "a value for each value": """
        abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or
        bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip copysign cos cosh deg2rad digamma div elu
        eq erf erfc erfinv exp exp2 expm1 float_power floor fmax fmin fmod frac ge gelu gt hardshrink hardsigmoid hardtanh
        heaviside hypot isfinite isinf isnan isneginf isposinf ldexp le leaky_relu lerp lgamma log log10 log1p log2 logaddexp
        logaddexp2 logical_and logical_not logical_or logical_xor logit lt maximum minimum mish mul nan_to_num ne neg
        nextafter positive pow rad2deg reciprocal relu remainder round rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc
        sinh softplus softshrink sqrt square sub tan tanh threshold trunc xlogy
    """,
    "losses that a model computes by itself": """
        binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy_loss huber_loss kl_div
        l1_loss mse_loss nll_loss nll_loss2d nll_loss_nd poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
    """,
    "products and sums": """
        addbmm addmm addmv addr all allclose amax amin aminmax any argmax argmin argsort baddbmm bmm cdist chain_matmul
        corrcoef count_nonzero cov cross cummax cummin cumprod cumsum cumulative_trapezoid det diff dist dot einsum equal
        floor_divide frobenius_norm ger gradient histc inner inverse isclose isin kron kthvalue linalg_cholesky linalg_cross
        linalg_det linalg_diagonal linalg_eigh linalg_inv linalg_matmul linalg_matrix_exp linalg_matrix_norm
        linalg_matrix_power linalg_multi_dot linalg_norm linalg_pinv linalg_qr linalg_slogdet linalg_solve linalg_svd
        linalg_vecdot linalg_vector_norm logcumsumexp logsumexp matmul matrix_exp matrix_power max mean median min mm mode
        msort mv nanmean nanmedian nanquantile nansum norm nuclear_norm outer pairwise_distance pdist prod quantile renorm
        sort std std_mean sum tensordot topk trace trapezoid trapz unique_consecutive unique_dim var var_mean vdot
        _is_all_true _is_any_true _unique2
    """,
    "by index: these look whether it is inside": """
        argwhere bucketize gather index index_add index_copy index_fill index_put index_reduce index_select masked_fill
        masked_scatter masked_select nonzero nonzero_numpy nonzero_static put scatter scatter_add scatter_reduce take
        take_along_dim where
    """,
    "other names of pointwise ops": """
        absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh divide fix greater greater_equal isreal less less_equal
        multiply negative not_equal subtract true_divide __and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__
        __or__ __rshift__ __xor__
    """,
    "facts about a tensor, and what torch.export says of them": """
        dim is_complex is_contiguous is_floating_point is_nonzero is_same_size is_signed item numel result_type size stride
        sym_constrain_range sym_constrain_range_for_size sym_numel sym_size sym_storage_offset sym_stride _assert_async
        _assert_scalar _assert_tensor_metadata _local_scalar_dense
    """,
}
_LISTED = frozenset(" ".join(_GROUPS.values()).split())
_PREFIXES = {"aten": ("fft_", "special_"), "quantized_decomposed": ("quantize_per_", "dequantize_per_")}
_OTHERS = {"aten": _LISTED, "torchvision": frozenset({"nms", "deform_conv2d"})}  # its other ops trust the boxes' numbers


def is_allowed(op: torch._ops.OpOverload) -> bool:
    """Whether a file may call it."""
    namespace, _, name = op._schema.name.partition("::")
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name  # relu_ writes what relu gives back
    if "batch_sizes" in (argument.name for argument in op._schema.arguments):  # lstm.data: of a packed sequence
        return False
    is_listed = not {name, plain}.isdisjoint(_OTHERS.get(namespace, ())) or plain.startswith(_PREFIXES.get(namespace, ()))
    return is_listed or (namespace == "aten" and _is_pointwise(plain))


def _is_pointwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or name.startswith("_") or "backward" in name:
        return False
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
