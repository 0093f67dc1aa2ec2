// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// maxEC2UserData in bytes is EC2's.
const maxEC2UserData = 16384

// fullUserData is what brings the machine's agent, and what the manifest adds to it.
func (b *builder) fullUserData(l machineSet) graph.Text {
	own := graph.LiteralText(bastionScript)
	if l.group.Spec.Role != v1alpha1.RoleBastion {
		own = b.bootUserData(l)
	}

	more := l.group.Spec.AdditionalUserData
	if len(more) == 0 {
		return own
	}

	text := own
	if l.group.Spec.UserDataFormat != "Ignition" {
		text = multipartMessage(own, more)
	}

	if size := sizeOf(text); size > maxEC2UserData {
		b.findings.Errorf(
			"instancegroup/"+l.group.Metadata.Name+": spec.additionalUserData",
			"",
			"fetch the larger part from S3 instead",
			"user data would have %d bytes, EC2 takes %d",
			size,
			maxEC2UserData,
		)
	}

	return text
}

// multipartMessage is a MIME message of which cloud-init runs our own part first among the scripts: what the manifest adds
// must not keep a machine from joining. Cloud-config and boothooks come before all scripts by their nature.
func multipartMessage(own graph.Text, more []v1alpha1.UserData) graph.Text {
	boundary := "slipway"
	for n := 1; containsBoundary("--"+boundary, own, more); n++ {
		boundary = fmt.Sprintf("slipway-%d", n)
	}

	head := func(typ, name string) string {
		return "--" + boundary + "\nContent-Type: " + typ + "; charset=\"utf-8\"\nContent-Transfer-Encoding: 8bit\n" +
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

// containsBoundary says whether mark occurs in what it is to part.
func containsBoundary(mark string, own graph.Text, more []v1alpha1.UserData) bool {
	for _, p := range own.Parts() {
		if strings.Contains(p.Literal, mark) {
			return true
		}
	}

	for _, m := range more {
		if strings.Contains(m.Content, mark) {
			return true
		}
	}

	return false
}

// sizeOf counts the bytes of a text; a load balancer's name, which is not known yet, as the longest that there may be.
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

// publicKey is an OpenSSH public key without its comment: EC2 does not keep it.
func publicKey(line string) string {
	f := strings.Fields(line)
	return strings.Join(f[:min(len(f), 2)], " ")
}
