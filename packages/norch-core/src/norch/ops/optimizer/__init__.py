"""Steps of optimisers: all parameters of a group changed in place by one call, outside the graph unless they are to be
differentiable: then they are made of tensor ops, and the graph records these.

A backend that has a kernel of such a name makes the step in one pass. What `compile` is asked for: the lists named
here, in this order, then the scalars; `count` of attrs is the number of parameters.

    sgd_step       params, momentum buffers (if attrs["momentum"]), gradients; scalars lr, weight_decay, momentum and
                   dampening; attrs count, momentum, nesterov, maximize
    asgd_step      params, averages, gradients; scalars eta, weight_decay, lambd, mu; attrs count, maximize
    rprop_step     params, previous gradients, step sizes, gradients; scalars etaminus, etaplus, smallest and largest
                   step size; attrs count, maximize
    lion_step      params, moments, gradients; scalars lr, weight_decay, beta1, beta2; attrs count, maximize
    adam_step      params, first moments, second moments, largest second moments (if attrs["amsgrad"]), gradients;
                   scalars lr, weight_decay, beta1, beta2, eps, 1 - beta1 ** step and 1 - beta2 ** step; attrs count,
                   decoupled, amsgrad, maximize
    nadam_step     params, first moments, second moments, gradients; scalars lr, weight_decay, beta1, beta2, eps, what
                   the gradient and the first moment are multiplied by, and 1 - beta2 ** step; attrs count, decoupled,
                   maximize
    radam_step     the same lists; scalars lr, weight_decay, beta1, beta2, eps, what the first moment is multiplied by;
                   attrs count, decoupled, rectified, maximize
    adamax_step    params, first moments, infinity norms, gradients; scalars lr, weight_decay, beta1, beta2, eps,
                   1 - beta1 ** step; attrs count, maximize
    adagrad_step   params, sums of squares, gradients; scalars lr, weight_decay, eps; attrs count, maximize
    adadelta_step  params, averages of squared gradients, of squared changes, gradients; scalars lr, weight_decay, rho,
                   eps; attrs count, maximize
    rmsprop_step   params, averages of squared gradients, of gradients (if attrs["centered"]), momentum buffers (if
                   attrs["momentum"]), gradients; scalars lr, weight_decay, alpha, eps, momentum; attrs count, centered,
                   momentum, maximize
    update_averages
                   averages, values; scalar weight; attrs count. The averages of batch_norm

All tensors are of one floating dtype, one dim and contiguous, and no two share memory; those of a parameter are equally
long; all but the gradients are read and written. Scalars are float64. Where there is no such kernel, or memory is laid
out in another way, the step is made of tensor ops.
"""

from .adam import adam_step_, adamax_step_, nadam_step_, radam_step_
from .adaptive import adadelta_step_, adagrad_step_, rmsprop_step_
from .averaging import update_averages_
from .descent import asgd_step_, lion_step_, rprop_step_, sgd_step_

__all__ = [
    "adadelta_step_",
    "adagrad_step_",
    "adam_step_",
    "adamax_step_",
    "asgd_step_",
    "lion_step_",
    "nadam_step_",
    "radam_step_",
    "rmsprop_step_",
    "rprop_step_",
    "sgd_step_",
    "update_averages_",
]
