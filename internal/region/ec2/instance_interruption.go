// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/json"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// SpotNotice is the time between a spot interruption notice and the interruption, as in AWS.
const SpotNotice = 2 * time.Minute

// InterruptSpotInstance gives a spot instance the notice that it will be interrupted, and terminates it when the
// notice ends. The notice appears in the metadata at spot/instance-action.
func (s *Service) InterruptSpotInstance(id string, notice time.Duration) error {
	return s.withLock(func() error {
		x, err := s.spotInstance(id)
		if err != nil {
			return err
		}

		x.InterruptedAt = s.cfg.Now().UTC().Add(notice)
		s.st.Pending = append(s.st.Pending, transition{At: x.InterruptedAt, Kind: transitionInstanceInterrupted, ID: id})
		s.wake.Send()
		s.markChanged()

		return nil
	})
}

// RecommendRebalance gives a spot instance the rebalance recommendation, which appears in the metadata at
// events/recommendations/rebalance.
func (s *Service) RecommendRebalance(id string) error {
	return s.withLock(func() error {
		x, err := s.spotInstance(id)
		if err != nil {
			return err
		}

		x.RebalanceAt = s.cfg.Now().UTC()
		s.requestNotification()
		s.markChanged()

		return nil
	})
}

// spotInstance returns what is stored about a live spot instance.
func (s *Service) spotInstance(id string) (*instanceExtra, error) {
	i, err := s.st.findInstance(&id)
	switch {
	case err != nil:
		return nil, err
	case !isLive(i):
		return nil, fmt.Errorf("instance %s is %s", id, str(i.State.Name))
	case str(i.InstanceLifecycle) != sdk.InstanceLifecycleTypeSpot:
		return nil, fmt.Errorf("instance %s is not a spot instance", id)
	}

	return s.st.Extra[id], nil
}

// interruptInstance terminates a spot instance whose notice has ended.
func (s instanceHandlers) interruptInstance(i *sdk.Instance) {
	if !isLive(i) {
		return
	}

	changeInstanceState(i, sdk.InstanceStateNameShuttingDown)
	at := s.cfg.Now().UTC().Format("2006-01-02 15:04:05 GMT")
	i.StateTransitionReason = new("Server.SpotInstanceTermination (" + at + ")")
	i.StateReason = &sdk.StateReason{
		Code:    new("Server.SpotInstanceTermination"),
		Message: new("Server.SpotInstanceTermination: Instance terminated by Spot service"),
	}

	s.beginTerminate(str(i.InstanceId))
}

// addInterruptionMetadata adds the target lifecycle state, and the notices of spot instances as the user guide of EC2
// documents them.
func addInterruptionMetadata(x *instanceExtra, meta func(path, value string)) {
	meta("autoscaling/target-lifecycle-state", x.Target)
	const format = "2006-01-02T15:04:05Z"
	document := func(fields map[string]string) string {
		body, err := json.Marshal(fields)
		if err != nil {
			return "" // strings can always be encoded
		}

		return string(body)
	}

	if !x.InterruptedAt.IsZero() {
		at := x.InterruptedAt.Format(format)
		meta("spot/instance-action", document(map[string]string{"action": "terminate", "time": at}))
		meta("spot/termination-time", at)
	}

	if !x.RebalanceAt.IsZero() {
		at := x.RebalanceAt.Format(format)
		meta("events/recommendations/rebalance", document(map[string]string{"noticeTime": at}))
	}
}
