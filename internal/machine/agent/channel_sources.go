// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/machine/addon/channelsource"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	// sourceTimeout limits one look at a source. It is shorter than the lease of the elected machine.
	sourceTimeout = 25 * time.Second
	// After a failure the next look comes sooner than after a success. The time doubles with each
	// further one.
	sourceRetry    = 30 * time.Second
	maxSourceRetry = 15 * time.Minute
	// loginRest is how long a token of Amazon ECR must still be valid to be used.
	loginRest = 5 * time.Minute
)

// channelSources reads the sources of channels that are followed.
type channelSources struct {
	agent *Agent
	api   kube.Client
	fetch func(ctx context.Context, s published.Source, known string) (channelsource.Revision, error)

	followed map[string]*followedChannel // by the name of the channel
	logins   map[string]registryToken    // by host
}

// followedChannel is what is known of one source.
type followedChannel struct {
	serial int64 // of the publication
	// channel has the releases of the revision that was accepted last. Without one it has none.
	channel    published.Channel
	files      channelsource.Files
	kubernetes string // the version that the releases were chosen for
	isRead     bool
	status     published.SourceStatus

	next     time.Time // of the next look
	looks    int
	failures int // in a row
}

func newChannelSources(a *Agent, api kube.Client) *channelSources {
	s := &channelSources{
		agent:    a,
		api:      api,
		followed: map[string]*followedChannel{},
		logins:   map[string]registryToken{},
	}
	s.fetch = channelsource.Fetcher{Proxy: http.ProxyFromEnvironment, Login: s.login}.Fetch

	return s
}

// lookOnce looks at the source that has been due for the longest time, if one is due, and reports
// whether it did. One look a run is enough, and keeps a slow server from delaying the other
// channels for long.
func (s *channelSources) lookOnce(
	ctx context.Context,
	channels []published.Channel,
	readStatus func(context.Context) (channelRecord, error),
) (bool, error) {
	var due *published.Channel

	present := map[string]bool{}
	for i, c := range channels {
		if c.Source == nil {
			continue
		}

		present[c.Name] = true
		if err := s.follow(ctx, c, readStatus); err != nil {
			return false, err
		}

		f := s.followed[c.Name]
		if !s.agent.Now().Before(f.next) && (due == nil || f.next.Before(s.followed[due.Name].next)) {
			due = &channels[i]
		}
	}

	for name := range s.followed {
		if !present[name] {
			delete(s.followed, name)
		}
	}

	if due == nil {
		return false, nil
	}

	s.look(ctx, *due)

	return true, nil
}

// follow begins to follow a channel that is new, or was published again. What was accepted earlier
// is in the status of the cluster, so that a machine that takes over notices when a source goes
// back.
func (s *channelSources) follow(
	ctx context.Context,
	c published.Channel,
	readStatus func(context.Context) (channelRecord, error),
) error {
	if f, known := s.followed[c.Name]; known && f.serial == c.Serial {
		return nil
	}

	record, err := readStatus(ctx)
	if err != nil {
		return err
	}

	f := &followedChannel{serial: c.Serial, status: published.SourceStatus{Address: c.Source.String()}}
	if former := record.channels[c.Name].Source; former != nil && former.Address == f.status.Address {
		f.status = *former
	}

	s.followed[c.Name] = f

	return nil
}

// look reads the source of a channel, and decides when it is read again.
func (s *channelSources) look(ctx context.Context, c published.Channel) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()

	f := s.followed[c.Name]
	f.looks++
	err := s.read(ctx, c, f)
	wait := c.Source.Interval
	if err != nil {
		f.failures++
		f.status.Error = err.Error()
		wait = min(sourceRetry<<min(f.failures-1, 10), max(maxSourceRetry, wait))
		s.agent.Log.Warn("channel source", slog.String("channel", c.Name), slog.Any("error", err))
	} else {
		f.failures = 0
	}

	f.next = s.agent.Now().Add(jitter(wait, fmt.Sprint(s.agent.instance.ID, c.Name, f.looks)))
}

// jitter returns a time that is up to a tenth shorter or longer than another one, so that the
// clusters of an organization do not ask a server at the same time.
func jitter(d time.Duration, seed string) time.Duration {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(seed))
	const steps = 1000
	offset := int64(sum.Sum32()%(2*steps+1)) - steps // from -steps to +steps

	return d + time.Duration(int64(d)/10*offset/steps)
}

// read accepts the newest revision of a source, or returns why it cannot. The revision before stays
// in that case.
func (s *channelSources) read(ctx context.Context, c published.Channel, f *followedChannel) error {
	kubernetes, err := s.kubernetesVersion(ctx)
	if err != nil {
		return err
	}

	known := ""
	if f.isRead {
		known = f.status.Revision
	}

	revision, err := s.fetch(ctx, *c.Source, known)
	if err != nil {
		return err
	}

	files := revision.Files
	created := revision.Created
	if f.isRead && revision.ID == known {
		files = f.files
		created = f.status.Created
	}

	if !f.isRead || revision.ID != known || f.kubernetes != kubernetes.String() {
		values := maps.Clone(c.Source.Values)
		if values["cluster.kubernetesVersion"] != "" {
			values["cluster.kubernetesVersion"] = kubernetes.String() // it may have been upgraded since
		}

		channel, err := files.Channel(c.Name, channelsource.Cluster{Kubernetes: kubernetes, Values: values})
		if err != nil {
			return fmt.Errorf("read %s: revision %s: %w", c.Source, revision.ID, err)
		}

		f.channel = channel
		f.files = files
		f.kubernetes = kubernetes.String()
		f.isRead = true
	}

	before := f.status.Revision
	f.status = f.status.Accept(revision.ID, created, s.agent.Now())
	f.status.IsVerified = len(c.Source.PublicKeys) > 0
	if before != revision.ID {
		s.agent.Log.Info(
			"channel source",
			slog.String("channel", c.Name),
			slog.String("source", c.Source.String()),
			slog.String("revision", revision.ID),
			slog.String("former", before),
			slog.Bool("rolledBack", f.status.RolledBackFrom != ""),
		)
	}

	return nil
}

// kubernetesVersion returns the version of the API server.
func (s *channelSources) kubernetesVersion(ctx context.Context) (*semver.Version, error) {
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := s.api.Get(ctx, "/version", &version); err != nil {
		return nil, err
	}

	return bundle.ParseKubernetesVersion(version.GitVersion)
}

// login returns a token of Amazon ECR, with the permissions of the machine's role.
func (s *channelSources) login(ctx context.Context, registry ecraddress.Registry) (published.Credentials, error) {
	token := s.logins[registry.Host]
	if stored := readRegistryToken(s.agent.Root); stored.isValidFor(registry.Host, s.agent.Now(), loginRest) {
		token = stored
	}

	if !token.isValidFor(registry.Host, s.agent.Now(), loginRest) {
		var err error
		if token, err = getRegistryToken(ctx, s.agent, registry); err != nil {
			return published.Credentials{}, err
		}

		s.logins[registry.Host] = token
	}

	return published.Credentials{User: token.User, Password: token.Password}, nil
}

// resolve returns a channel with the releases of its source, and false if none was accepted yet.
func (s *channelSources) resolve(c published.Channel) (published.Channel, bool) {
	f, known := s.followed[c.Name]
	if !known || !f.isRead {
		return c, false
	}

	c.Releases = f.channel.Releases
	c.Unfit = f.channel.Unfit

	return c, true
}

// describe returns the status of a channel with what is known of its source, and an error if the
// source is not read or its newest revision is refused.
func (s *channelSources) describe(out published.Status, c published.Channel) (published.Status, error) {
	f, known := s.followed[c.Name]
	if !known {
		f = &followedChannel{status: published.SourceStatus{Address: c.Source.String()}}
	}

	status := f.status
	out.Source = &status

	switch {
	case status.Error != "":
		out.State = published.Failed
		out.Message = status.Error

		return out, errors.New(status.Error)

	case !f.isRead:
		out.State = published.Pending
		out.Message = "its source was not read yet"

	case status.RolledBackFrom != "" && out.Message == "":
		out.Message = fmt.Sprintf("the source has gone back to revision %s from %s", status.Revision, status.RolledBackFrom)
	}

	return out, nil
}
