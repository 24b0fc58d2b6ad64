"""Actors: state in a process of its own, named actors, handles passed to tasks."""
import manta

manta.init()


@manta.remote
class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        self.balance += amount
        return self.balance

    @manta.method(num_returns=2)
    def summary(self):
        return self.owner, self.balance


account = Account.options(name="savings").remote("Ada", balance=100)


@manta.remote
def pay_in(handle, times):
    for _ in range(times):
        handle.deposit.remote(10)
    return times


manta.get([pay_in.remote(account, 3), pay_in.remote(account, 2)])
owner, balance = manta.get(manta.get_actor("savings").summary.options(num_returns=2).remote())
print(f"{owner} has {balance}")

manta.kill(account)
try:
    manta.get(account.deposit.remote(1))
except manta.exceptions.ActorDiedError:
    print("the account is closed")
