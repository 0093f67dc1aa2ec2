// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// maxEC2UserData is EC2's limit for user data, in bytes.
const maxEC2UserData = 16384

// fullUserData returns the user data that installs the agent, combined with that of the manifest.
func (b *builder) fullUserData(l machineSet) graph.Text {
	own := graph.LiteralText(bastionScript)
	if l.group.Spec.Role != v1alpha1.RoleBastion {
		own = b.bootUserData(l)
	}

	text := withAdditionalUserData(l.group.Spec, own)
	if len(l.group.Spec.AdditionalUserData) > 0 {
		checkUserDataSize(b, l.group, sizeOf(text))
	}

	return text
}

// withAdditionalUserData combines Slipway's user data with that of the manifest.
func withAdditionalUserData(spec v1alpha1.InstanceGroupSpec, own graph.Text) graph.Text {
	if len(spec.AdditionalUserData) == 0 || spec.UserDataFormat == "Ignition" {
		return own
	}

	return multipartMessage(own, spec.AdditionalUserData)
}

// checkUserDataSize reports user data that is too long for EC2.
func checkUserDataSize(b *builder, ig v1alpha1.InstanceGroup, size int) {
	if size > maxEC2UserData {
		b.findings.Errorf(
			"instancegroup/"+ig.Metadata.Name+": spec.additionalUserData",
			"",
			"download the larger part from S3 instead",
			"user data would have %d bytes, EC2 allows %d",
			size,
			maxEC2UserData,
		)
	}
}

// multipartMessage returns a MIME message of which cloud-init runs Slipway's part as the first script, so
// that user data of the manifest cannot keep a machine from joining. Cloud-init always runs cloud-config and
// boothooks before scripts.
func multipartMessage(own graph.Text, more []v1alpha1.UserData) graph.Text {
	boundary := "slipway"
	for n := 1; containsBoundary("--"+boundary, own, more); n++ {
		boundary = fmt.Sprintf("slipway-%d", n)
	}

	head := func(typ, name string) string {
		return "--" + boundary + "\nContent-Type: " + typ + "; charset=\"utf-8\"\n" +
			"Content-Transfer-Encoding: 8bit\n" +
			"Content-Disposition: attachment; filename=\"" + name + "\"\n\n"
	}

	parts := []graph.Text{
		graph.LiteralText(
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"" + boundary + "\"\n\n" + head(
				"text/x-shellscript",
				"00-slipway",
			),
		),
		own, graph.LiteralText("\n"),
	}

	for _, m := range more {
		parts = append(
			parts,
			graph.LiteralText(head(m.Type, m.Name)+strings.TrimSuffix(m.Content, "\n")+"\n"),
		)
	}

	return graph.Concat(append(parts, graph.LiteralText("--"+boundary+"--\n"))...)
}

// containsBoundary reports whether one of the parts contains boundary.
func containsBoundary(boundary string, own graph.Text, more []v1alpha1.UserData) bool {
	for _, p := range own.Parts() {
		if strings.Contains(p.Literal, boundary) {
			return true
		}
	}

	for _, m := range more {
		if strings.Contains(m.Content, boundary) {
			return true
		}
	}

	return false
}

// sizeOf returns the maximal size of a text, in bytes: an unknown name of a load balancer counts as
// reservedNameBytes.
func sizeOf(text graph.Text) int {
	size := 0
	for _, p := range text.Parts() {
		size += len(p.Literal)
		if p.Symbol != (graph.Symbol{}) {
			size += reservedNameBytes
		}
	}

	return size
}

// publicKey returns an OpenSSH public key without its comment, which EC2 does not keep.
func publicKey(line string) string {
	f := strings.Fields(line)
	return strings.Join(f[:min(len(f), 2)], " ")
}
