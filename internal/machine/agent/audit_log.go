// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/auditlog"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	// auditLogInterval is how often new lines of the audit log are uploaded.
	auditLogInterval = time.Minute
	// auditLogTimeout limits one upload, which may have several objects.
	auditLogTimeout = 10 * time.Minute
	// auditLogLastTimeout limits the upload when the agent stops: the machine may be about to end.
	auditLogLastTimeout = 10 * time.Second
	// auditLogStateFile is where the agent remembers what it has uploaded.
	auditLogStateFile = "/var/lib/slipway/audit-log.json"
)

// auditLogUpload uploads the audit log of the machine's API server, if the cluster's manifest says so.
type auditLogUpload struct {
	agent    *Agent
	uploader *auditlog.Uploader
}

func newAuditLogUpload(m *etcdMember) *auditLogUpload {
	a := m.agent
	prefix := store.AuditLogPrefix(a.doc.Cluster) + a.instance.ID + "/"

	return &auditLogUpload{agent: a, uploader: &auditlog.Uploader{
		Dir:       a.Root.Path(kube.LogDir),
		StateFile: a.Root.Path(auditLogStateFile),
		Now:       a.Now,
		Create: func(ctx context.Context, name string, body []byte) error {
			_, err := m.store.Create(ctx, prefix+name, body)
			return err
		},
	}}
}

// keepAuditLog uploads the audit log until ctx ends, and once more then: a machine that is terminated takes the rest
// with it.
func (m *etcdMember) keepAuditLog(ctx context.Context) error {
	upload := newAuditLogUpload(m)
	task := periodicTask{"audit log", auditLogInterval, upload.run}
	err := task.repeat(ctx, m.agent, auditLogTimeout)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditLogLastTimeout)
	defer cancel()
	if lastErr := upload.run(last); lastErr != nil {
		m.agent.Log.Warn("the end of the audit log is not uploaded", slog.Any("error", lastErr))
	}

	return err
}

// run uploads what is new. It does nothing unless the cluster's manifest asks for it.
func (u *auditLogUpload) run(ctx context.Context) error {
	if !u.agent.doc.KubeAPIServer.AuditLogUpload {
		return nil
	}

	done, err := u.uploader.Upload(ctx)
	if done.Gap {
		u.agent.Log.Warn(
			"files of the audit log were deleted before they were uploaded; raise spec.kubeAPIServer.auditLogMaxBackup",
			slog.Int64("knownBytes", done.Lost),
		)
	}

	return err
}
