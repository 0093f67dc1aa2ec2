// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// channelReadInterval is the time between two conditional reads of the published channels.
	channelReadInterval = time.Minute
	// channelCheckInterval is the time between two comparisons of a channel with the cluster, if neither has a reason.
	channelCheckInterval = time.Minute

	channelLeaseName = "slipway-addon-channels"
)

// channelTask applies the channels of add-ons that an operator has published, if this machine of the control plane is
// elected for it.
type channelTask struct {
	agent    *Agent
	api      kube.Client
	election *election
	sources  *channelSources

	etag      string // the ETag of what was read last
	channels  published.Channels
	readAfter time.Time
	// checked is the serial that was applied last, and checkAfter is when it is compared with the cluster again.
	checked    int64
	checkAfter time.Time
	// failure of the last comparison; nil: none.
	failure error
}

func newChannelTask(a *Agent, api kube.Client) *channelTask {
	return &channelTask{agent: a, api: api, sources: newChannelSources(a, api), election: &election{
		api:      api,
		name:     channelLeaseName,
		holder:   a.instance.ID,
		duration: addonLease,
		now:      a.Now,
	}}
}

// run applies the published channels, unless another machine is elected for it. Without any, it makes no requests to the
// API server.
func (t *channelTask) run(ctx context.Context) error {
	if err := t.readChannels(ctx); err != nil || t.channels.Serial == 0 {
		return err
	}

	if !t.agent.apiOpen.Load() {
		return newNotReadyError("the API server has not read its authorization rules yet")
	}

	if elected, err := t.election.lead(ctx); err != nil || !elected {
		return err
	}

	hasLooked, err := t.sources.lookOnce(ctx, t.channels.Channels, t.readStatus)
	if err != nil {
		return err
	}

	if !hasLooked && t.checked == t.channels.Serial && t.agent.Now().Before(t.checkAfter) {
		return t.failure
	}

	t.failure = t.reconcileAll(ctx)
	t.checked = t.channels.Serial
	t.checkAfter = t.agent.Now().Add(channelCheckInterval)

	return t.failure
}

// reconcileAll applies or compares all channels, and records what came of it.
func (t *channelTask) reconcileAll(ctx context.Context) error {
	former, err := t.readStatus(ctx)
	if err != nil {
		return err
	}

	if former.serial > t.channels.Serial {
		return fmt.Errorf("the published channels have serial %d, but serial %d was applied before: publish them again with "+
			"slipway addons publish", t.channels.Serial, former.serial)
	}

	now := channelRecord{serial: t.channels.Serial, channels: map[string]published.Status{}}
	var errs []error

	for _, c := range t.channels.Channels {
		status, err := t.reconcileOne(ctx, c)
		now.channels[c.Name] = status
		if err != nil {
			errs = append(errs, fmt.Errorf("channel %s: %w", c.Name, err))
		}
	}

	return errors.Join(append(errs, t.writeStatus(ctx, former, now))...)
}

// reconcileOne applies or compares one channel. One that is followed and whose source was never read is left alone.
func (t *channelTask) reconcileOne(ctx context.Context, c published.Channel) (published.Status, error) {
	if c.Source == nil {
		return t.reconcile(ctx, c)
	}

	resolved, isRead := t.sources.resolve(c)
	status := published.Status{Serial: c.Serial, Mode: c.Mode}
	var err error
	if isRead {
		status, err = t.reconcile(ctx, resolved)
	}

	status, sourceErr := t.sources.describe(status, c)

	return status, errors.Join(err, sourceErr)
}

// channelRecord is what the cluster keeps of the published channels.
type channelRecord struct {
	// serial is the highest one that was applied: an object with a lower one was put back by somebody.
	serial   int64
	channels map[string]published.Status
}

// readChannels reads the published channels if that is due and they have changed.
func (t *channelTask) readChannels(ctx context.Context) error {
	a := t.agent
	if a.Changing == nil || a.Now().Before(t.readAfter) {
		return nil
	}

	url, err := node.SiblingURL(a.Boot.Document.URL, a.doc.Cluster, published.Key(a.doc.Cluster))
	t.readAfter = a.Now().Add(channelReadInterval)
	if err != nil {
		return nil // a document from elsewhere has no channels
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	body, tag, err := a.Changing.ReadIfChanged(ctx, url, t.etag)
	switch {
	case errors.Is(err, store.ErrNotFound):
		t.etag = ""
		t.channels = published.Channels{}

		return nil

	case err != nil:
		return err
	case body == nil:
		return nil
	}

	channels, err := published.Open(ctx, storeSealer(a), a.doc.Cluster, body)
	if err != nil {
		return err
	}

	t.etag = tag
	t.channels = channels

	return nil
}

// storeSealer decrypts with the key of the machine store only. Documents of earlier versions do not name the key.
func storeSealer(a *Agent) store.Sealer {
	if a.SealerOf == nil || a.doc.Store.KMSKeyARN == "" {
		return a.Sealer
	}

	return a.SealerOf(a.doc.Store.KMSKeyARN)
}

// reconcile applies one channel, or only compares it.
func (t *channelTask) reconcile(ctx context.Context, c published.Channel) (published.Status, error) {
	a := t.agent
	out := published.Status{Serial: c.Serial, Mode: c.Mode, State: published.Applied}
	engine := &applier.Applier{
		Client: objectClient{api: t.api},
		Mapper: newKindMapper(func(path string) ([]byte, error) {
			return t.api.Do(ctx, http.MethodGet, path, "", nil)
		}),
		DoNotWait: true,
		Now:       a.Now,
		Wait:      a.Wait,
		Notify: func(message string) {
			a.Log.Info("add-on", slog.String("channel", c.Name), slog.String("change", message))
		},
	}

	plan, err := engine.Plan(ctx, c.Name, c.ApplierReleases())
	plan.Left = slices.DeleteFunc(plan.Left, func(i applier.Inventory) bool { return slices.Contains(c.Unfit, i.Name) })
	if err == nil || c.Mode == published.Correct {
		out = describeDifferences(out, plan, c)
	}

	if c.Mode == published.Correct {
		results, applyErr := engine.Apply(ctx, plan) // an add-on that is refused does not stop the others
		err = errors.Join(err, applyErr)
		if err == nil && c.Prune {
			err = deleteLeft(ctx, engine, plan.Left)
		}

		out = describeResults(out, results)
	}

	if err != nil {
		out.State = published.Failed
		out.Message = err.Error()
	}

	return out, err
}

// describeDifferences returns a status with what a plan would change.
func describeDifferences(s published.Status, plan applier.Plan, c published.Channel) published.Status {
	for _, p := range plan.Addons {
		for _, step := range p.Steps {
			if !isChange(step.Action) {
				continue
			}

			s.Differences++
			if s.Message == "" {
				s.Message = fmt.Sprintf("%s differs: %s of add-on %s", step.Object, step.Action, p.Name)
			}
		}
	}

	if c.Prune {
		s.Differences += len(plan.Left)
	}

	if s.Differences == 0 {
		return s
	}

	s.State = published.Drifted
	if s.Message == "" {
		s.Message = "add-on " + plan.Left[0].Name + " is no longer in the channel"
	}

	return s
}

func isChange(action applier.Action) bool {
	return action == applier.Create || action == applier.Update || action == applier.Delete
}

// describeResults returns the status after an apply: nothing differs any more, and some add-ons may be waited for.
func describeResults(s published.Status, results []applier.Result) published.Status {
	s.State = published.Applied
	s.Differences = 0
	s.Message = ""

	for _, r := range results {
		if r.Outcome != applier.OutcomeApplying && r.Outcome != applier.OutcomeSkipped {
			continue
		}

		s.State = published.Applying
		if s.Message == "" {
			s.Message = "add-on " + r.Name + ": " + r.Message
		}
	}

	return s
}

// readStatus returns what was written last.
func (t *channelTask) readStatus(ctx context.Context) (channelRecord, error) {
	var have struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
	}
	err := t.api.Get(ctx, configMapsPath+"/"+published.StatusName, &have)
	if errors.Is(err, kube.ErrNotFound) {
		return channelRecord{}, nil
	}

	if err != nil {
		return channelRecord{}, err
	}

	channels, err := published.ParseStatus(have.Data)
	if err != nil {
		return channelRecord{}, err
	}

	serial, err := strconv.ParseInt(have.Metadata.Annotations[published.SerialAnnotation], 10, 64)
	if err != nil {
		return channelRecord{}, fmt.Errorf("read annotation %s of ConfigMap kube-system/%s: %w",
			published.SerialAnnotation, published.StatusName, err)
	}

	return channelRecord{serial: serial, channels: channels}, nil
}

// writeStatus writes the record, if it has changed.
func (t *channelTask) writeStatus(ctx context.Context, former, now channelRecord) error {
	if former.serial == now.serial && maps.EqualFunc(former.channels, now.channels, published.Status.Equal) {
		return nil
	}

	data := map[string]string{}
	for name, status := range now.channels {
		text, err := json.Marshal(status)
		if err != nil {
			return fmt.Errorf("encode the status of channel %s: %w", name, err)
		}

		data[name] = string(text)
	}

	object, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata": map[string]any{
			"name":        published.StatusName,
			"namespace":   "kube-system",
			"annotations": map[string]string{published.SerialAnnotation: strconv.FormatInt(now.serial, 10)},
		},
		"data": data,
	})
	if err != nil {
		return fmt.Errorf("encode ConfigMap kube-system/%s: %w", published.StatusName, err)
	}

	return t.api.Apply(ctx, configMapsPath+"/"+published.StatusName, object)
}
