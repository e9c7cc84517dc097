"""A policy gradient on a walk along a line, an advantage from a critic, and weights averaged by a target network."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Linear(2, 8)
        self.action_head = nn.Linear(8, 2)
        self.value_head = nn.Linear(8, 1)
        self.register_buffer("scale", torch.tensor([4.0, 1.0]), persistent=False)

    @torch.no_grad()
    def act(self, state):
        return self(state)[0].argmax(-1).item()

    def forward(self, x):
        x = F.relu6(self.affine(x / self.scale))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


model, target = ActorCritic(), ActorCritic()
fill(model)
target.load_state_dict(model.state_dict())
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
chances = noise(200).double().abs().tolist()
place = 0
for episode in range(5):
    state, rewards, saved = torch.tensor([0.0, 1.0]), [], []
    for t in range(8):
        probs, value = model(state)
        action = int(chances[place] % 1 > probs[0].item())
        place += 1
        saved.append((torch.log(probs[action]), value, -(probs * probs.log()).sum()))
        state = state + torch.tensor([1.0 if action else -1.0, 0.0])
        rewards.append(float(state[0].item() > 0))
    R, returns = 0.0, []
    for r in rewards[::-1]:
        R = r + 0.9 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + torch.finfo(returns.dtype).eps)
    policy_losses, value_losses = [], []
    for (log_prob, value, entropy), R in zip(saved, returns):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage - 0.01 * entropy)
        value_losses.append(F.smooth_l1_loss(value, R.reshape(1)))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    for slow, fast in zip(target.parameters(), model.parameters()):
        slow.data.copy_(0.5 * slow.data + 0.5 * fast.data)
    print(f"{episode} {sum(rewards):.1f} {loss.item():.6f} {target(state)[1].item():.6f} {target.act(state)}")
torch.set_default_dtype(torch.float32)
