// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Agent converges one machine. Its fields are everything it touches, so that tests give it a world of their own.
type Agent struct {
	Boot node.BootConfig
	Root *HostFS
	Run  Runner
	// Open downloads.
	Open     Opener
	Metadata Metadata
	// EC2, Store and Sealer are used on control-plane machines only. Store is the machine store.
	EC2    EC2API
	Store  func(url string) (store.Store, error)
	Sealer store.Sealer
	// Sign proves which instance this is, on workers.
	Sign join.Signer
	// Signals tells CloudFormation that the machine is well, where a stack made it.
	Signals Signaller
	// HTTP is for what is not our own API: downloads and STS.
	HTTP   *http.Client
	Report *Reporter
	Log    *slog.Logger
	Now    func() time.Time
	Wait   func(context.Context, time.Duration) error

	doc      node.Document
	instance Instance
	bundle   pki.Bundle
	// failureSignalled says that the stack was told that this machine will not be well.
	failureSignalled bool
}

// Converge makes the machine what its document says, once. It returns when all is started.
func (a *Agent) Converge(ctx context.Context) error {
	if err := a.readInstanceAndDocument(ctx); err != nil {
		return err
	}

	if a.doc.Role == v1alpha1.RoleControlPlane {
		return a.convergeControlPlane(ctx)
	}

	return a.convergeWorker(ctx)
}

// ConvergeAndMaintain converges, then keeps the machine so until ctx ends. What fails is reported and tried again.
func (a *Agent) ConvergeAndMaintain(ctx context.Context) error {
	pause := time.Second
	for {
		err := a.Converge(ctx)
		if err == nil {
			break
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

	return a.runPeriodicTasks(ctx)
}

// runStage runs one stage and reports how it goes.
func (a *Agent) runStage(name string, do func() error) error {
	a.Report.Running(name, "")
	return a.reportStageEnd(name, do())
}

// reportStageEnd reports how a stage ended. A notReadyError is no failure, yet the stage is not done.
func (a *Agent) reportStageEnd(name string, err error) error {
	var wait notReadyError
	switch {
	case err == nil:
		a.Report.Done(name)
		return nil
	case errors.As(err, &wait):
		a.Report.Running(name, wait.reason)
	default:
		a.Report.Failed(name, err)
	}

	return fmt.Errorf("stage %s: %w", name, err)
}

// retryUntilReady runs a stage again every 2 s while it only has to wait.
func (a *Agent) retryUntilReady(ctx context.Context, name string, do func() error) error {
	a.Report.Running(name, "")
	for {
		err := a.reportStageEnd(name, do())
		if _, waits := errors.AsType[notReadyError](err); !waits {
			return err
		}

		if err := a.Wait(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}

// readInstanceAndDocument learns what this machine is and is to be, and downloads it. Every byte is checked before it is used.
func (a *Agent) readInstanceAndDocument(ctx context.Context) error {
	return a.runStage("fetch", func() error {
		var err error
		if a.instance, err = ReadInstance(ctx, a.Metadata, a.Root); err != nil {
			return err
		}

		if a.doc, err = a.downloadDocument(ctx); err != nil {
			return err
		}

		return nil
	})
}

func (a *Agent) downloadDocument(ctx context.Context) (node.Document, error) {
	f := a.newFetcher("fetch")
	file := node.File{
		Name:   "document.json",
		URL:    a.Boot.Document.URL,
		SHA256: a.Boot.Document.SHA256,
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
			fmt.Errorf("document is for group %s of cluster %s, this machine is of %s of %s",
				doc.Group, doc.Cluster, a.Boot.Group, a.Boot.Cluster),
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

// downloadFiles downloads the files of the document and refuses what has another hash.
func (a *Agent) downloadFiles(ctx context.Context) error {
	return a.runStage("verify", func() error {
		_, err := a.newFetcher("verify").FetchAll(ctx, a.doc.Files)
		return err
	})
}

// Openers chooses by scheme: s3 for s3:// URLs, plain for the rest.
type Openers struct {
	S3   func(ctx context.Context, url string) (io.ReadCloser, error)
	HTTP HTTPOpener
}

// Open opens url.
func (o Openers) Open(ctx context.Context, url string) (io.ReadCloser, error) {
	if len(url) > 5 && url[:5] == "s3://" {
		return o.S3(ctx, url)
	}

	return o.HTTP.Open(ctx, url)
}
