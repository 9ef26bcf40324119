# SPDX-License-Identifier: MIT
# One image for worker, beat, bridge and Flower. Every package in it is pinned by a hash in requirements.lock.
#   docker build .                     for workers that reach SLURM by slurmrestd (execution_mode: rest)
#   docker build --target docker-exec  with the docker client, for command_prefix: docker exec slurmctld
#   docker build --target demo         with the emulated SLURM, for the profile `demo`
# Base images are named by tag, which their publishers may move. To pin one: --build-arg PYTHON=3.13-slim-bookworm@sha256:...
ARG PYTHON=3.13-slim-bookworm
ARG DOCKER=28-cli

# What the lock file names is downloaded once and compared with its hashes. Only what our package needs of it goes on.
FROM python:${PYTHON} AS wheels
WORKDIR /src
COPY requirements.lock .
RUN pip download --quiet --no-cache-dir --no-deps --require-hashes --only-binary :all: --dest /wheels -r requirements.lock
RUN pip install --quiet --no-cache-dir --upgrade --no-index --find-links /wheels setuptools
COPY pyproject.toml README.md LICENSE beat_schedule.py flowerconfig.py manage.py ./
COPY agent agent
COPY backends backends
COPY simulator simulator
COPY tasks tasks
COPY waldur_slurm waldur_slurm
RUN pip wheel --quiet --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels .

FROM wheels AS venv
RUN python -m venv --without-pip /opt/waldur-site-cluster
RUN pip --python /opt/waldur-site-cluster/bin/python install --quiet --no-cache-dir --no-index --find-links /wheels waldur-site-cluster[apm,oidc]

FROM venv AS venv-demo
RUN pip --python /opt/waldur-site-cluster/bin/python install --quiet --no-cache-dir --no-index --find-links /wheels waldur-site-cluster[demo]

FROM python:${PYTHON} AS base
RUN useradd --uid 10001 --no-create-home --home-dir /tmp site && install -d -o site -g site -m 700 /var/lib/waldur-site-cluster
ENV PATH=/opt/waldur-site-cluster/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    WALDUR_SITE_AGENT_CONFIG=/etc/waldur/waldur-site-agent-config.yaml \
    WALDUR_SITE_AGENT_STATE_DIR=/var/lib/waldur-site-cluster
WORKDIR /
USER 10001:10001
CMD ["waldur-site-cluster", "--help"]

FROM docker:${DOCKER} AS docker-client

FROM base AS demo
COPY --from=venv-demo /opt/waldur-site-cluster /opt/waldur-site-cluster

FROM base AS docker-exec
COPY --from=docker-client /usr/local/bin/docker /usr/local/bin/docker
COPY --from=venv /opt/waldur-site-cluster /opt/waldur-site-cluster

# The last one is what `docker build .` makes.
FROM base AS agent
COPY --from=venv /opt/waldur-site-cluster /opt/waldur-site-cluster
