// SPDX-License-Identifier: Apache-2.0

package cloudwatchlogs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudwatchlogs"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// The limits of the region and of CloudWatch Logs (CloudWatch Logs API reference).
const (
	maxStreamEvents   = 10_000 // of the region: it keeps its state in memory
	maxStreamsPerPage = 50
	maxEventsPerPage  = 10_000
)

// Append adds lines to a stream of a group, which it creates if it is missing. It returns false if there is no such
// group.
func (s *Service) Append(group, stream string, lines ...string) bool {
	found := false
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the lines
		g := s.st.Groups[group]
		if g == nil {
			return nil
		}

		found = true
		now := s.cfg.Now().UTC()
		if g.Streams[stream] == nil {
			g.Streams[stream] = &logStream{Created: now}
		}

		to := g.Streams[stream]
		for _, line := range lines {
			to.Events = append(to.Events, logEvent{Time: now, Message: line})
		}

		to.Events = to.Events[max(0, len(to.Events)-maxStreamEvents):]
		s.keepRecent(g)
		s.store.MarkChanged()

		return nil
	})

	return found
}

func (s *Service) describeLogStreams(in *sdk.DescribeLogStreamsInput) (*sdk.DescribeLogStreamsOutput, error) {
	g, err := s.findGroup(in.LogGroupName)
	if err != nil {
		return nil, err
	}

	limit := int64(maxStreamsPerPage)
	if in.Limit != nil {
		limit = min(limit, *in.Limit)
	}

	names := slices.DeleteFunc(sdkshape.SortedKeys(g.Streams), func(name string) bool {
		return !strings.HasPrefix(name, sdkshape.String(in.LogStreamNamePrefix))
	})

	page, next, err := sdkshape.Paginate(
		names,
		limit,
		in.NextToken,
		newErrorf(codeInvalidParameter, "The specified nextToken is invalid."),
	)
	out := &sdk.DescribeLogStreamsOutput{LogStreams: []*sdk.LogStream{}, NextToken: next}

	for _, name := range page {
		stream := g.Streams[name]
		shape := &sdk.LogStream{
			Arn:           new(s.groupARN(*in.LogGroupName) + ":log-stream:" + name),
			LogStreamName: &name,
			CreationTime:  new(stream.Created.UnixMilli()),
			StoredBytes:   new(int64(0)), //nolint:staticcheck // deprecated, and AWS still answers 0
		}
		if n := len(stream.Events); n > 0 {
			shape.FirstEventTimestamp = new(stream.Events[0].Time.UnixMilli())
			shape.LastEventTimestamp = new(stream.Events[n-1].Time.UnixMilli())
			shape.LastIngestionTime = shape.LastEventTimestamp
		}

		out.LogStreams = append(out.LogStreams, shape)
	}

	return out, err
}

// filterLogEvents returns the events of a group, oldest first. The region implements no filter patterns.
func (s *Service) filterLogEvents(in *sdk.FilterLogEventsInput) (*sdk.FilterLogEventsOutput, error) {
	g, err := s.findGroup(in.LogGroupName)
	if err != nil {
		return nil, err
	}

	s.keepRecent(g)
	wanted := sdkshape.Strings(in.LogStreamNames)
	var found []*sdk.FilteredLogEvent

	for _, name := range sdkshape.SortedKeys(g.Streams) {
		if len(wanted) > 0 && !slices.Contains(wanted, name) ||
			!strings.HasPrefix(name, sdkshape.String(in.LogStreamNamePrefix)) {
			continue
		}

		for i, e := range g.Streams[name].Events {
			at := e.Time.UnixMilli()
			if in.StartTime != nil && at < *in.StartTime || in.EndTime != nil && at > *in.EndTime {
				continue
			}

			found = append(found, &sdk.FilteredLogEvent{
				EventId:       new(fmt.Sprintf("%d-%s-%d", at, name, i)),
				LogStreamName: &name,
				Message:       &e.Message,
				Timestamp:     &at,
				IngestionTime: &at,
			})
		}
	}

	slices.SortStableFunc(found, func(a, b *sdk.FilteredLogEvent) int { return cmp.Compare(*a.Timestamp, *b.Timestamp) })

	limit := int64(maxEventsPerPage)
	if in.Limit != nil {
		limit = min(limit, *in.Limit)
	}

	key := func(e *sdk.FilteredLogEvent) string { return *e.EventId }
	bad := newErrorf(codeInvalidParameter, "The specified nextToken is invalid.")
	page, next, err := sdkshape.PaginateList(found, key, limit, in.NextToken, bad)

	return &sdk.FilterLogEventsOutput{Events: page, NextToken: next}, err
}
