// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}

	return false
}

// podFact returns what health needs to know of a pod. The events of failed probes say why a pod that runs is
// not ready.
func podFact(p corev1.Pod, unhealthy []corev1.Event, now time.Time) health.Pod {
	out := health.Pod{
		Namespace: p.Namespace,
		Name:      p.Name,
		Node:      p.Spec.NodeName,
		Running:   isReady(p),
	}
	if !out.Running {
		out.Reason = notReadyReason(p, unhealthy, now)
	}

	return out
}

// notReadyReason says why a pod is not ready: its container, its probe, its scheduling or its phase.
func notReadyReason(p corev1.Pod, unhealthy []corev1.Event, now time.Time) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return "not scheduled: " + c.Message
		}
	}

	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range statuses {
			if reason := containerReason(s, now); reason != "" {
				return "container " + s.Name + ": " + reason
			}
		}
	}

	if p.Status.Phase != corev1.PodRunning {
		return strings.TrimSpace("phase " + string(p.Status.Phase) + " " + p.Status.Reason + " " + p.Status.Message)
	}

	if probe := lastFailedProbe(p, unhealthy); probe != "" {
		return "not Ready: " + probe
	}

	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Message != "" {
			return "not Ready: " + c.Message
		}
	}

	return "not Ready"
}

// containerReason says why a container does not run, with how it ended last. It is empty for one that runs or
// has done its work.
func containerReason(s corev1.ContainerStatus, now time.Time) string {
	var out []string
	switch {
	case s.State.Waiting != nil:
		out = append(out, strings.TrimSuffix(s.State.Waiting.Reason+": "+waitingMessage(s), ": "))
	case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
		out = append(out, describeExit("ended with", *s.State.Terminated, now))
	default:
		return ""
	}

	if s.RestartCount > 0 {
		out[0] += fmt.Sprintf(", restarted %d times", s.RestartCount)
	}

	if last := s.LastTerminationState.Terminated; last != nil {
		out = append(out, describeExit("last exit", *last, now))
	}

	return strings.Join(out, "; ")
}

// waitingMessage returns the message of a waiting container, except that of a crash loop: it only repeats the
// reason and the pod's name, and the last exit says more.
func waitingMessage(s corev1.ContainerStatus) string {
	if s.State.Waiting.Reason == "CrashLoopBackOff" {
		return ""
	}

	return s.State.Waiting.Message
}

// describeExit describes how a container ended: "last exit 137 (OOMKilled) 20s ago: its last message".
func describeExit(verb string, t corev1.ContainerStateTerminated, now time.Time) string {
	text := fmt.Sprintf("%s %d", verb, t.ExitCode)
	if t.Reason != "" {
		text += " (" + t.Reason + ")"
	}

	if age := now.Sub(t.FinishedAt.Time); !t.FinishedAt.IsZero() && age >= 0 {
		text += " " + age.Round(time.Second).String() + " ago"
	}

	lines := strings.Split(strings.TrimSpace(t.Message), "\n")
	if last := lines[len(lines)-1]; last != "" {
		text += ": " + last
	}

	return text
}

// probeStatus is the end of the kubelet's message of a failed HTTP probe.
var probeStatus = regexp.MustCompile(`HTTP probe failed with statuscode: (\d+)`)

// lastFailedProbe returns the newest failed probe of a pod, such as "readiness probe failed: 503".
func lastFailedProbe(p corev1.Pod, unhealthy []corev1.Event) string {
	var newest corev1.Event
	for _, e := range unhealthy {
		if e.InvolvedObject.UID == p.UID && !eventTime(e).Before(eventTime(newest)) {
			newest = e
		}
	}

	text := probeStatus.ReplaceAllString(strings.TrimSpace(newest.Message), "$1")
	if text == "" {
		return ""
	}

	return strings.ToLower(text[:1]) + text[1:]
}

// eventTime returns when an event happened last.
func eventTime(e corev1.Event) time.Time {
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}

	return e.EventTime.Time
}
