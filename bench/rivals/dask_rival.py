"""Dask distributed doing what single_client_tasks_async and _sync do: prints tasks/s and µs (p50).

Arguments: number of worker processes, seconds for each measurement.
"""
import os
import sys
import time

from distributed import Client, LocalCluster


def work(index):
    return os.getpid(), index


def main():
    workers, seconds = int(sys.argv[1]), float(sys.argv[2])
    with LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.gather([client.submit(work, i, pure=False) for i in range(100)])
            count, begin = 0, time.perf_counter()
            while count == 0 or time.perf_counter() - begin < seconds:
                futures = [client.submit(work, i, pure=False) for i in range(1000)]
                for i, (pid, index) in enumerate(client.gather(futures)):
                    assert index == i and pid != os.getpid()
                count += len(futures)
            rate = count / (time.perf_counter() - begin)
            samples, end = [], time.perf_counter() + seconds
            while len(samples) < 20 or time.perf_counter() < end:
                begin = time.perf_counter()
                pid, index = client.submit(work, len(samples), pure=False).result()
                assert index == len(samples) and pid != os.getpid()
                samples.append(time.perf_counter() - begin)
            print(rate, sorted(samples)[len(samples) // 2] * 1e6, flush=True)


if __name__ == "__main__":
    main()
