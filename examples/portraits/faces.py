"""Draws two simple faces into `faces/` beside this file, so that the example needs no photo of anybody.

Run it once: `python examples/portraits/faces.py [FOLDER]`. A real FaceID model needs real photos.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw

FACES = {"left": ((214, 170, 140), (60, 40, 30)), "right": ((150, 105, 80), (20, 20, 25))}


def draw(skin: tuple[int, int, int], hair: tuple[int, int, int]) -> Image.Image:
    """A face of these colours, from the front."""
    image = Image.new("RGB", (320, 400), (120, 140, 160))
    pen = ImageDraw.Draw(image)
    pen.ellipse((60, 30, 260, 260), fill=hair)
    pen.ellipse((80, 70, 240, 320), fill=skin)
    for eye in (125, 195):
        pen.ellipse((eye - 14, 165, eye + 14, 185), fill="white")
        pen.ellipse((eye - 7, 168, eye + 7, 182), fill="black")
    pen.arc((130, 235, 190, 280), 20, 160, fill=(150, 60, 60), width=5)
    return image


def main(folder: Path) -> None:
    """Write the faces."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (skin, hair) in FACES.items():
        draw(skin, hair).save(folder / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "faces")
