// SPDX-License-Identifier: Apache-2.0

// Package cluster computes and applies the desired state of one cluster.
//
// An [Env] describes the caller: its stores, its AWS configuration, its identity and its hooks. A [Session]
// is one cluster in AWS during one request. [Desired] is what the cluster's manifests ask for: node
// documents, the graph of resources and the plan that makes AWS match it. A [Review] is what a person sees
// and approves before anything changes.
//
// The packages below this one carry out requests: apply, destroy, drift, preflight, validate and others.
// Like this one, they know no flags and print nothing; they report through [Hooks] and return typed
// results.
package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/filesum"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// Env is the caller of a request and what the request may use. It is the same for all requests of a process
// and is not changed by them.
type Env struct {
	// Stores opens the state store and machine stores.
	Stores Stores
	// AWS returns the configuration for calls to a region; an empty region is the caller's default.
	AWS func(ctx context.Context, region string) (sdk.Config, error)
	// Region is the region that the caller asked for. Empty: the one in the cluster's manifest.
	Region string
	// Calls counts and paces all calls to AWS.
	Calls *transport.CallLimiter
	// Now is the clock.
	Now func() time.Time
	// Resolver queries the DNS.
	Resolver Resolver
	// Registries answers requests to the registries of images. Nil: http.DefaultTransport.
	Registries http.RoundTripper
	// Operator describes the caller in locks and in the journal. Operation is set by each request.
	Operator operation.Initiator
	// User is the caller's account name, for the subject of certificates. It may be empty.
	User string
	// Tool is the version and the commit of the running slipway.
	Tool string
	// Lease is how long a lock outlives its last renewal. Zero: [operation.DefaultLeaseDuration].
	Lease time.Duration
	// LockTimeout is how long to wait for a lock of another process. Zero: do not wait.
	LockTimeout time.Duration
	// ReadOnly is set if no change can be approved: requests plan and show, and take no lock.
	ReadOnly bool
	// AgentPath is the agent's program file. Empty: slipway-node next to the running program.
	AgentPath string
	// FunctionPath is the program file of the function that keeps DNS records. Empty: slipway-dns next to the running program.
	FunctionPath string
	// Sums caches the hashes of agent binaries.
	Sums filesum.Cache
	// TakeOver is the id of a cluster that this state store takes over on purpose, from another copy of the
	// store or after the record of the id was lost; or [ownership.Unmarked]. Empty: none.
	TakeOver string
	// Hooks report progress and ask for approval.
	Hooks Hooks
}

// Stores opens stores. Each store is opened once a process.
type Stores interface {
	// StateURL returns the URL of the state store, or an error if none is configured.
	StateURL() (string, error)
	// State opens the state store.
	State(ctx context.Context) (store.Store, store.Sealer, error)
	// Open opens the store at url. region is where calls for it go; empty: the caller's default.
	Open(ctx context.Context, url, region string) (store.Store, store.Sealer, error)
	// OpenDiscovery opens the discovery store at url, which need not exist. region is where calls for it go.
	OpenDiscovery(ctx context.Context, url, region string) (store.Store, error)
}

// Resolver queries the DNS. [net.Resolver] implements it.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupNS(ctx context.Context, name string) ([]*net.NS, error)
}

// Hooks are called by a request, by one goroutine at a time. Each may be nil.
type Hooks struct {
	// Notify reports a message of one line.
	Notify func(message string)
	// Warn reports findings that do not stop the request.
	Warn func(diag.Findings)
	// StartProgress returns a display for the progress of one plan or stack.
	StartProgress func() Progress
	// Show shows what a request will do, also if that is nothing.
	Show func(Review) error
	// Approve asks whether to do it. An error stops the request; nil approves.
	Approve func(context.Context, Review) error
}

// Progress displays how the steps of one plan or stack proceed.
type Progress struct {
	// OnEvent handles one event. It is called by one goroutine at a time.
	OnEvent func(plan.Event)
	// End removes what the display shows of steps that still run. Events may follow.
	End func()
	// Interval is how often the display wants an event for a step that still runs. Zero: never.
	Interval time.Duration
}

// Notifyf reports a formatted message of one line to the caller.
func (env *Env) Notifyf(format string, args ...any) {
	if env.Hooks.Notify != nil {
		env.Hooks.Notify(fmt.Sprintf(format, args...))
	}
}

// Warn reports findings that do not stop the request.
func (env *Env) Warn(findings diag.Findings) {
	if env.Hooks.Warn != nil && len(findings) > 0 {
		env.Hooks.Warn(findings)
	}
}

// StartProgress returns a display for the progress of one plan or stack.
func (env *Env) StartProgress() Progress {
	if env.Hooks.StartProgress != nil {
		return env.Hooks.StartProgress()
	}

	return Progress{OnEvent: func(plan.Event) {}, End: func() {}}
}

// Show shows what the request will do.
func (env *Env) Show(review Review) error {
	if env.Hooks.Show == nil {
		return nil
	}

	return env.Hooks.Show(review)
}

// Approve asks whether to do it. Nil approves.
func (env *Env) Approve(ctx context.Context, review Review) error {
	if env.Hooks.Approve == nil {
		return nil
	}

	return env.Hooks.Approve(ctx, review)
}
