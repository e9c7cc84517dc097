"""SyncBatchNorm: with two processes equal to BatchNorm on the whole batch, with one BatchNorm itself."""

import norch
from norch import nn


def test_equals_the_whole_batch(mpirun):
    done = mpirun(2, "sync_batchnorm.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2: equal", "rank 1 of 2: equal"]


def test_is_batch_norm_without_a_group():
    x = norch.randn(4, 3, 2, 2)
    sync, plain = nn.SyncBatchNorm(3), nn.BatchNorm2d(3)
    norch.testing.assert_close(sync(x), plain(x), rtol=0, atol=0)
    norch.testing.assert_close(sync.eval()(x), plain.eval()(x), rtol=0, atol=0)
    assert list(sync.state_dict()) == list(plain.state_dict())


def test_takes_the_place_of_batch_norm_alone():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm3d(3), nn.InstanceNorm2d(3)), nn.LayerNorm(2))
    tensors = model.state_dict(keep_vars=True)
    model.eval()
    made = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    kinds = [type(m).__name__ for m in made.modules()]
    assert kinds == ["Sequential", "SyncBatchNorm", "Sequential", "SyncBatchNorm", "InstanceNorm2d", "LayerNorm"]
    assert all(found is tensors[name] for name, found in made.state_dict(keep_vars=True).items())
    assert not made[0].training
    assert type(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3))) is nn.SyncBatchNorm
