// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/ecrlogin"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/imdsguard"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/nft"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/peerlookup"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Agent converges one machine to its node document. The exported fields are its dependencies; the
// caller sets all of them unless noted.
type Agent struct {
	// Boot is the boot configuration from user data.
	Boot node.BootConfig
	// Root writes the machine's files.
	Root *HostFS
	// Run executes programs.
	Run Runner
	// Nft loads packet filters. Nil: GuardMetadata and PolicyRules do not use it, and the control plane has no gate.
	Nft *nft.Program
	// Open opens downloads.
	Open Opener
	// Changing reads objects of the machine store that change.
	Changing ChangingReader
	// Metadata is the instance metadata service.
	Metadata Metadata
	// GuardMetadata lets only the agent and the allowed control groups reach the instance metadata
	// service, and only the agent the join endpoint; nil does nothing.
	GuardMetadata func(ctx context.Context, allowed imdsguard.Allowed) error
	// PolicyRules are the rules of NetworkPolicies in the kernel; nil: none are loaded.
	PolicyRules PolicyRules
	// Registry returns the API of Amazon ECR in a region. It is used if images come from a private registry there.
	Registry func(region string) ecrlogin.API
	// AWSEndpoint is where all services of AWS are, for pods of the cluster's own add-ons. Empty: at their usual addresses.
	AWSEndpoint string
	// Images are those of the machine, in the kubelet's namespace of containerd.
	Images ImageService
	// EC2 is used on control-plane machines only.
	EC2 EC2API
	// Peers reads the DNS records of etcd's members. Default: the resolver of the VPC.
	Peers PeerResolver
	// Scaling replaces workers, and speaks for those for which Auto Scaling waits. It is used on control-plane machines only.
	Scaling RepairAPI
	// Lifecycle has the control plane tell Auto Scaling about this machine, on workers. Default: the join endpoint.
	Lifecycle LifecycleSender
	// Store opens the machine store. It is used on control-plane machines only.
	Store func(url string) (store.Store, error)
	// Sealer decrypts secrets. It is used on control-plane machines only.
	Sealer store.Sealer
	// SealerOf returns a sealer that uses the KMS key keyARN. It is used on control-plane machines only.
	SealerOf func(keyARN string) store.Sealer
	// Sign creates the proof of this instance's identity, on workers.
	Sign join.Signer
	// Signals notifies CloudFormation, if a stack created this machine.
	Signals Signaller
	// HTTP is the client for STS.
	HTTP *http.Client
	// Report writes progress to the serial console.
	Report *Reporter
	// Log receives everything else.
	Log *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Wait sleeps until the duration has passed or the context ends.
	Wait func(context.Context, time.Duration) error

	doc      node.Document
	instance Instance
	// launch is how far the launch of this machine is. It is used by one task at a time.
	launch hookProgress
	bundle pki.Bundle
	// former are the keys of other clusters whose backup was restored; nil until the agent has read its secrets.
	former *formerKeys
	// failureSignalled is set after the stack was notified that this machine will not become
	// healthy.
	failureSignalled bool
	// apiOpen is set while other machines may connect to this machine's API server.
	apiOpen atomic.Bool
	// etcdStopped is set while the agent keeps the etcd member stopped because its volume does not work.
	etcdStopped atomic.Bool
	// documentState is what the machine remembers of the revisions of its node document. Only the task that follows
	// them changes it.
	documentState follow.State
	// restarted are the components that this process has restarted because an earlier one was stopped in a change.
	restarted map[string]bool
	// documentStatus is what the machine reports of its document; nil before the document is known.
	documentStatus atomic.Pointer[documentStatus]
	// etcdFenced is set from when the agent sets the member's data aside until the member runs with restored data.
	etcdFenced atomic.Bool
	// restoredAt is when the newest restoration of etcd was requested; nil if there was none.
	restoredAt atomic.Pointer[time.Time]
	// apiStops is held while a stop of the API server begins or ends, and while the static pods are written.
	apiStops sync.Mutex
	// recovery is what the agent remembers of a quorum that is missing.
	recovery recoveryMemory
	// quorumLost is set while this machine reaches no quorum of etcd.
	quorumLost atomic.Bool
	// metrics is what the agent serves as metrics.
	metrics knownMetrics
	// etcdData is held while a task decides about the member's data directory, or moves it.
	etcdData sync.Mutex
	// conditions of the machine, which the agent reports. Every task sets those of what it maintains.
	conditions report.Board
	// handOver is what the agent knows of hand-overs of its slot.
	handOver handOver
	// heartbeats of workers that this control-plane machine has heard.
	heartbeats join.Heartbeats
	// machines are those of the cluster, as EC2 listed them last. It is used on control-plane machines only.
	machines machineList
	// peersAnswer is set while the etcd members of all other slots answered when they were asked last.
	peersAnswer atomic.Bool
	// peers is what the task that keeps /etc/hosts remembers of the DNS records of the members.
	peers peerlookup.Memory
	// seenSlots are the names of the slots that have a running machine, as EC2 or DNS listed them last; nil before.
	seenSlots atomic.Pointer[[]string]
}

// Converge brings the machine to the state of its document once. It returns after all services were
// started.
func (a *Agent) Converge(ctx context.Context) error {
	reloadEarlierRules(ctx, a)

	if err := a.readInstanceAndDocument(ctx); err != nil {
		return err
	}

	if a.doc.Role == v1alpha1.RoleControlPlane {
		return a.convergeControlPlane(ctx)
	}

	return a.convergeWorker(ctx)
}

// ConvergeAndMaintain converges the machine and then runs the periodic tasks until ctx ends. A machine that has
// handed over its slot converges again: it waits for the slot's volume.
func (a *Agent) ConvergeAndMaintain(ctx context.Context) error {
	for {
		if err := convergeWithRetries(ctx, a); err != nil {
			return err
		}

		if err := continueAfter(ctx, a, maintainDocuments(ctx, a)); err != nil {
			return err
		}
	}
}

// maintainDocuments runs the periodic tasks until they end with an error other than a change of the node document.
func maintainDocuments(ctx context.Context, a *Agent) error {
	for {
		err := a.runPeriodicTasks(ctx)
		changed, ok := errors.AsType[documentChangedError](err)
		if !ok {
			return err
		}

		// No task runs now, so that none sees a half of the change.
		a.doc = changed.document

		// The task that restores kernel settings may have restored a former one during the change.
		for _, err := range a.applySysctls(a.sysctls()) {
			a.Log.Warn("cannot change kernel setting", slog.Any("error", err))
		}
	}
}

// convergeWithRetries converges the machine, retrying with backoff. Failures are reported, and signalled to
// CloudFormation if retrying cannot help.
func convergeWithRetries(ctx context.Context, a *Agent) error {
	pause := time.Second
	for {
		err := a.Converge(ctx)
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return ctx.Err()
		}

		a.signalFailure(ctx, err)
		if err := a.Wait(ctx, pause); err != nil {
			return err
		}

		pause = min(2*pause, 30*time.Second)
	}
}

// runStage runs one stage and reports its progress.
func (a *Agent) runStage(name string, do func() error) error {
	a.Report.Running(name, "")
	return a.reportStageEnd(name, do())
}

// runCancellableStage is runStage for a stage that runs next to others. If ctx was cancelled, because another
// stage failed, it reports no failure: the cause is the failure of the other stage.
func (a *Agent) runCancellableStage(ctx context.Context, name string, do func() error) error {
	a.Report.Running(name, "")

	return a.reportUnlessCancelled(ctx, name, do())
}

// reportUnlessCancelled is reportStageEnd, except for an error after the cancellation of ctx.
func (a *Agent) reportUnlessCancelled(ctx context.Context, name string, err error) error {
	if err != nil && ctx.Err() != nil {
		a.Report.Running(name, "stopped, because another stage failed or the agent is stopping")

		return fmt.Errorf("stage %s: %w", name, ctx.Err())
	}

	return a.reportStageEnd(name, err)
}

// reportStageEnd reports how a stage ended and returns err with the stage's name. A notReadyError
// is reported as still running, with the reason.
func (a *Agent) reportStageEnd(name string, err error) error {
	var notReady notReadyError
	switch {
	case err == nil:
		a.Report.Done(name)
		return nil
	case errors.As(err, &notReady):
		a.Report.Running(name, notReady.reason)
	default:
		a.Report.Failed(name, err)
	}

	return fmt.Errorf("stage %s: %w", name, err)
}

// retryUntilReady runs a stage every 2 seconds until it returns something other than a
// notReadyError.
func (a *Agent) retryUntilReady(ctx context.Context, name string, do func() error) error {
	return retryEvery(ctx, a, stageRetry{name: name, pause: 2 * time.Second, do: do})
}

// stageRetry is a stage that runs until it returns something other than a notReadyError.
type stageRetry struct {
	name string
	// pause between two attempts.
	pause time.Duration
	do    func() error
}

// retryEvery runs a stage repeatedly.
func retryEvery(ctx context.Context, a *Agent, s stageRetry) error {
	a.Report.Running(s.name, "")
	for {
		err := a.reportUnlessCancelled(ctx, s.name, s.do())
		if _, waiting := errors.AsType[notReadyError](err); !waiting {
			return err
		}

		if err := a.Wait(ctx, s.pause); err != nil {
			return err
		}
	}
}

// readInstanceAndDocument reads the instance's properties, and downloads and verifies the node
// document.
func (a *Agent) readInstanceAndDocument(ctx context.Context) error {
	return a.runStage("fetch", func() error {
		var err error
		if a.instance, err = ReadInstance(ctx, a.Metadata, a.Root); err != nil {
			return err
		}

		if a.doc, err = a.loadDocument(ctx); err != nil {
			return err
		}

		return nil
	})
}

// loadDocument returns the document that this machine had last. A new machine has that of its user data.
func (a *Agent) loadDocument(ctx context.Context) (node.Document, error) {
	a.documentState = readDocumentState(a)
	defer func() { a.setDocumentStatus(report.Revision{State: report.RevisionUnknown}) }()
	if sum := a.documentState.EffectiveDocument(); sum != a.Boot.Document.SHA256 {
		doc, err := readEffectiveDocument(a.Root, sum)
		if err == nil {
			return doc, nil
		}

		a.Log.Warn("cannot read the node document of this machine; using that of its user data", slog.Any("error", err))
		a.documentState = follow.State{Instance: a.instance.ID, Boot: a.Boot.Document.SHA256}
	}

	return a.downloadDocument(ctx, a.Boot.Document)
}

// downloadDocument downloads a node document, and verifies its hash and that it is for this machine.
func (a *Agent) downloadDocument(ctx context.Context, from node.Download) (node.Document, error) {
	f := a.newFetcher("fetch")
	file := node.File{
		Name:   "document.json",
		URL:    from.URL,
		SHA256: from.SHA256,
		Form:   node.FormBinary,
	}

	paths, err := f.FetchAll(ctx, []node.File{file})
	if err != nil {
		return node.Document{}, err
	}

	body, err := a.Root.Read(paths[file.Name])
	if err != nil {
		return node.Document{}, err
	}

	doc, err := node.ParseDocument(body)
	if err != nil {
		return node.Document{}, permanentError{err}
	}

	if doc.Cluster != a.Boot.Cluster || doc.Group != a.Boot.Group {
		return node.Document{}, permanentError{
			fmt.Errorf("node document is for %s/%s (cluster/group), but this machine is in %s/%s",
				doc.Cluster, doc.Group, a.Boot.Cluster, a.Boot.Group),
		}
	}

	return doc, nil
}

func (a *Agent) newFetcher(stage string) Fetcher {
	return Fetcher{
		Root:    a.Root,
		Open:    a.Open,
		Wait:    a.Wait,
		OnRetry: func(err error) { a.Report.Running(stage, err.Error()) },
	}
}

// downloadFiles downloads the files of the document and verifies their hashes.
func (a *Agent) downloadFiles(ctx context.Context) error {
	return a.runCancellableStage(ctx, "verify", func() error {
		_, err := a.newFetcher("verify").FetchAll(ctx, a.doc.Files)
		return err
	})
}

// Openers is an Opener that uses S3 for s3:// URLs and HTTP for all others.
type Openers struct {
	S3   func(ctx context.Context, url string) (io.ReadCloser, error)
	HTTP HTTPOpener
}

// Open opens url. The caller closes the reader.
func (o Openers) Open(ctx context.Context, url string) (io.ReadCloser, error) {
	if len(url) > 5 && url[:5] == "s3://" {
		return o.S3(ctx, url)
	}

	return o.HTTP.Open(ctx, url)
}
